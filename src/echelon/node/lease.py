"""Which attempt may write: a second supervisor of the same run leaves before it touches anything."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LeaseHeld(Exception):  # noqa: N818  a fact about the run, not a failure
    """Another supervisor of this run is alive."""


def take(path: Path, attempt: int) -> int:
    """The open file that holds the lease until this process ends, whichever way it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 100).decode(errors="replace").strip()
        os.close(fd)
        raise LeaseHeld(holder) from None
    os.ftruncate(fd, 0)
    os.write(fd, f"attempt {attempt} pid {os.getpid()}\n".encode())
    return fd


def is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
