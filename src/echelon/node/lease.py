"""Who may write: a second supervisor of the same run leaves before it touches anything."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

QUESTION = struct.Struct("hhqqi")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class LeaseHeld(Exception):  # noqa: N818  a fact about the run, not a failure
    """Another supervisor of this run is alive."""


def take(path: Path) -> int:
    """The open file that holds the lease until this process ends, whichever way it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = os.read(fd, 100).decode(errors="replace").strip()
        os.close(fd)
        raise LeaseHeld(holder) from None
    os.ftruncate(fd, 0)
    os.write(fd, f"pid {os.getpid()}\n".encode())
    return fd


def is_held(path: Path) -> bool:
    """Only asks: taking the lock to find out could turn a supervisor away that starts at this very moment."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, QUESTION.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(fd)
    return bool(QUESTION.unpack(answer)[0] != fcntl.F_UNLCK)
