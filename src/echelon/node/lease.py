"""Who may write: a second supervisor of the same run leaves before it touches anything."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from pathlib import Path

from echelon.events import NO_LOCKS

QUESTION = struct.Struct("hhqqi")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class LeaseHeld(Exception):  # noqa: N818  a fact about the run, not a failure
    """Another supervisor of this run is alive."""


LOOK_SECONDS = 0.5


def take(path: Path, patience: float = 0.0) -> int:
    """The open file that holds the lease until this process ends, whichever way it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while not _locked(fd):
        if time.monotonic() >= deadline:
            holder = os.pread(fd, 300, 0).decode(errors="replace").strip()
            os.close(fd)
            raise LeaseHeld(holder)
        time.sleep(LOOK_SECONDS)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return fd


def _locked(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise  # a file system without locks: the scheduler alone sees to it that there is one attempt at a time
    return True


def is_held(path: Path) -> bool:
    """Only asks: taking the lock to find out could turn a supervisor away that starts at this very moment."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, QUESTION.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    finally:
        os.close(fd)
    return bool(QUESTION.unpack(answer)[0] != fcntl.F_UNLCK)
