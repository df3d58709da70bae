"""What an image's name says: a file or a folder here, or an address from which a runtime fetches it."""

from __future__ import annotations

import re

FILES = (".sqsh", ".squashfs", ".sif", ".simg", ".img")
OF_APPTAINER = r"[a-z+-]+://|(oci|oci-archive|docker-archive|docker-daemon):"
"""What it takes for an address; anything else is a file or a folder to it, whatever its name."""


def is_address(image: str, environment: str) -> bool:
    """`docker://ubuntu`; for pyxis also `nvcr.io#nvidia/pytorch:24.01` and `ubuntu:22.04`, for files have a slash in
    front, or an ending."""
    if environment in ("apptainer", "singularity"):
        return re.match(OF_APPTAINER, image) is not None
    if re.match(r"[a-z+]+://", image):
        return True
    return not image.endswith(FILES) and not image.startswith(("/", "./", "../", "~"))
