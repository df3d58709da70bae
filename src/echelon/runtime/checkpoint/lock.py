"""One writer for a folder of checkpoints. Under echelon the run's lease sees to that; elsewhere a lock does."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import names


def take(folder: Path) -> int | None:
    """An open file that holds the lock as long as this process lives; None where the file system has no locks."""
    fd = os.open(folder / names.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = os.read(fd, 200).decode(errors="replace").strip()
        os.close(fd)
        raise EnvironmentProblem(
            f"another job saves to {folder}",
            origin="echelon.Checkpoint",
            why=f"the lock is held by {holder or 'somebody'}",
            hint="give each job a folder of its own: Checkpoint('checkpoints/second', ...)",
        ) from None
    except OSError:
        os.close(fd)
        return None
    os.ftruncate(fd, 0)
    os.write(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return fd
