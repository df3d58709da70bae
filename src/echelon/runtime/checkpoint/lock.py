"""One writer for a folder of checkpoints. In a run's own folder the run's lease sees to that; elsewhere a lock does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from datetime import timedelta
from pathlib import Path

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import names
from echelon.runtime.meeting import polls

PATIENCE = timedelta(seconds=30)
"""For a job before this one that is just ending."""


def take(folder: Path, *, run: str = "", patience: timedelta = PATIENCE) -> int | None:
    """An open file that holds the lock as long as this process lives; None where the file system has no locks.

    None also where an earlier start of the same `run` still holds it after that long: its node may be gone, with
    nobody left to give the lock back, and the fence keeps it from committing.
    """
    fd = os.open(folder / names.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        locked = any(_locked(fd) for _ in polls(patience))
    except OSError:
        os.close(fd)
        return None
    if locked:
        _sign(fd, f"{_of(run)}process {os.getpid()} on {socket.gethostname()}\n")
        return fd
    holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
    os.close(fd)
    if run and holder.startswith(_of(run)):
        return None
    raise EnvironmentProblem(
        f"another job saves to {folder}",
        origin="echelon.Checkpoint",
        why=f"the lock is held by {holder or 'somebody'}",
        hint="give each job a folder of its own: Checkpoint('checkpoints/second', ...)",
    )


def _locked(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _sign(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
        os.ftruncate(fd, os.pwrite(fd, text.encode(), 0))


def _of(run: str) -> str:
    return f"run {run}, " if run else ""
