"""A socket by way of its folder: its own path may have no more than 107 bytes, and folders have long names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def by_folder(path: Path, act: Callable[[str], object]) -> None:
    """`act` is a socket's bind or connect."""
    fd = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        act(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)
