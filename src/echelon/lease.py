"""The lease of a run: a file lock that makes a second supervisor exit before it writes anything."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from pathlib import Path

from echelon.events import LOCKS_UNSUPPORTED

FLOCK = struct.Struct("hhqqi")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class LeaseHeld(Exception):  # noqa: N818  a fact about the run, not a failure
    """Another supervisor of this run is alive."""


POLL_SECONDS = 0.5


def acquire(path: Path, seconds: float = 0.0) -> int:
    """Takes the lease and returns its open file. The lease lasts until the file is closed or the process ends.

    Waits up to `seconds`, then raises LeaseHeld with the holder.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + seconds
    while not _try_lock(fd):
        if time.monotonic() >= deadline:
            holder = os.pread(fd, 300, 0).decode(errors="replace").strip()
            os.close(fd)
            raise LeaseHeld(holder)
        time.sleep(POLL_SECONDS)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in LOCKS_UNSUPPORTED:
            raise  # otherwise the file system has no locks, and only the scheduler ensures one attempt at a time
    return True


def is_held(path: Path) -> bool:
    """Queries the lock without taking it: taking it could make a supervisor that starts at this moment exit."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno not in LOCKS_UNSUPPORTED:
            raise
        return False
    finally:
        os.close(fd)
    return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
