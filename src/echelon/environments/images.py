"""What an image's name says: a file or a folder here, or an address from which a runtime fetches it."""

from __future__ import annotations

import re

FILES = (".sqsh", ".squashfs", ".sif", ".simg", ".img")


def is_address(image: str) -> bool:
    """`docker://ubuntu`, `nvcr.io#nvidia/pytorch:24.01`, `ubuntu:22.04`; files have a slash in front, or an ending."""
    if re.match(r"[a-z+]+://", image):
        return True
    return not image.endswith(FILES) and not image.startswith(("/", "./", "../", "~"))
