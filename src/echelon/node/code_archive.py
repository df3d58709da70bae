"""The snapshot as one file, for hosts that do not see the run directory."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path


def pack(code: Path, archive: Path) -> None:
    """Makes the archive, whole or not at all."""
    part = archive.with_name(f".{archive.name}.{os.urandom(4).hex()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for path in sorted(code.iterdir()):
            tar.add(path, arcname=path.name, filter=_anonymous)
    part.replace(archive)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(archive: Path, code: Path) -> None:
    """And takes the archive away."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "tar_filter"):
            tar.extractall(code, filter="tar")
        else:
            tar.extractall(code)  # noqa: S202  our own archive, made by pack
    archive.unlink()
