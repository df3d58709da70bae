"""Bytes that are on the disk when a function returns: a rank's file, the manifest, and the rename that commits."""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

from echelon.runtime.checkpoint import manifest as manifests
from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.manifest import BLOCK, Manifest
from echelon.runtime.checkpoint.names import Name

BITE = 1 << 20
"""Bytes written at a time: they are still in the processor's cache after their CRC was taken."""


def write_shard(path: Path, parts: Sequence[memoryview | bytes]) -> tuple[int, list[int]]:
    """A new file, synced: its size and the CRC of each block of it. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        written = _write_blocks(fd, parts)
        os.fsync(fd)
    finally:
        os.close(fd)
    return written


def _write_blocks(fd: int, parts: Sequence[memoryview | bytes]) -> tuple[int, list[int]]:
    size, crcs = 0, list[int]()
    for part in parts:
        rest = memoryview(part)
        while rest:
            if size % BLOCK == 0:
                crcs.append(0)
            room = min(BITE, BLOCK - size % BLOCK)
            piece, rest = rest[:room], rest[room:]
            crcs[-1] = zlib.crc32(piece, crcs[-1])
            size += len(piece)
            _write_fully(fd, piece)
    return size, crcs


def _write_fully(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def commit(temporary: Path, manifest: Manifest) -> Path:
    """The checkpoint's final folder. Once this returns it survives a crash of the machine; raises OSError."""
    write_shard(temporary / names.MANIFEST, [manifests.to_bytes(manifest)])
    sync_folder(temporary)
    final = _renamed(temporary, Name(manifest.step))
    sync_folder(final.parent)
    return final


def _renamed(temporary: Path, name: Name) -> Path:
    """A rename onto a folder with something in it fails, so of two who try, none overwrites the other."""
    while True:
        final = temporary.with_name(str(name))
        try:
            temporary.rename(final)
        except OSError as error:
            if not final.is_dir():
                raise error from None
            name = name.next_take
        else:
            return final


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def discard(path: Path) -> None:
    """Renamed first: a folder that is half deleted can then no longer be committed by anybody."""
    gone = path.with_name(names.discarded(os.urandom(4).hex()))
    with contextlib.suppress(OSError):
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes what saves have left that never came to their end."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if names.is_debris(path.name):
                discard(path)
