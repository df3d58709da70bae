"""Is a checkpoint what it was when it was committed? By manifest, sizes and CRCs; needs no torch."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from echelon.runtime.checkpoint import manifest as manifests
from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.lineage import Descent, by_descent
from echelon.runtime.checkpoint.manifest import BLOCK, File, Manifest
from echelon.runtime.checkpoint.names import Name

BITE = 1 << 18
"""Bytes read at a time: they are still in the processor's cache when their CRC is taken."""


class Damaged(Exception):  # noqa: N818  a fact about a file, told in its message
    """Names the file and what is wrong with it."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path.parent.name}/{path.name} {what}")
        self.path = path


def committed(folder: Path) -> list[Name]:
    """In the order of their commits, oldest first: whoever goes back to step 500 commits 600 after 2000."""
    return _in_order(folder, _manifests(folder))


def candidates(folder: Path, step: int | None) -> list[Name]:
    """Those to go on from, of that step or of any, in the order in which to try them."""
    found = _manifests(folder)
    descents = [
        Descent(name=name, parent=manifest.parent if (manifest := found[name]) is not None else None)
        for name in _in_order(folder, found)
    ]
    return [name for name in by_descent(descents) if step in (None, name.step)]


def _in_order(folder: Path, found: Mapping[Name, Manifest | None]) -> list[Name]:
    commits = [(manifest.time, manifest.commit) for manifest in found.values() if manifest is not None]

    def age(name: Name) -> tuple[int, float, Name]:
        manifest = found[name]
        if manifest is not None:
            return manifest.commit, manifest.time, name
        changed = _changed(folder / str(name))  # the best guess where the manifest cannot be read
        return max((commit for time, commit in commits if time <= changed), default=0), changed, name

    return sorted(found, key=age)


def next_commit(folder: Path) -> int:
    """The number of the commit that comes after all that are there."""
    return 1 + max((manifest.commit for manifest in _manifests(folder).values() if manifest is not None), default=0)


def _manifests(folder: Path) -> dict[Name, Manifest | None]:
    """None for one that cannot be read."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208  names are all we want
    except OSError:
        return {}
    found = [name for name in map(names.parse, entries) if name is not None]
    return {name: _readable_manifest(folder / str(name)) for name in found}


def _readable_manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except Damaged:
        return None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_manifest(folder: Path) -> Manifest:
    """Of one checkpoint; raises Damaged."""
    path = folder / names.MANIFEST
    try:
        return manifests.from_bytes(path.read_bytes())
    except FileNotFoundError as error:
        raise Damaged(path, "is missing") from error
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Damaged(path, f"is damaged: {error}") from error


def check_sizes(folder: Path, files: Sequence[File]) -> None:
    """Raises Damaged; costs a stat for each file."""
    for file in files:
        path = folder / file.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise Damaged(path, "is missing" if isinstance(error, FileNotFoundError) else str(error)) from error
        if size != file.size:
            raise Damaged(path, f"has {size} bytes, and had {file.size} when it was committed")


def check_blocks(folder: Path, files: Sequence[File], *, part: int = 0, parts: int = 1) -> None:
    """Reads every parts-th block, from the part's own on; raises Damaged. All parts together read everything."""
    buffer = memoryview(bytearray(BITE))
    for file, blocks in _dealt(files, part, parts):
        path = folder / file.name
        try:
            with path.open("rb", buffering=0) as source:
                for block in blocks:
                    _check_block(path, source.fileno(), file, block, buffer)
        except OSError as error:
            raise Damaged(path, f"cannot be read: {error.strerror}") from error


def _dealt(files: Sequence[File], part: int, parts: int) -> Iterator[tuple[File, range]]:
    """Blocks are dealt like cards, over the ends of files."""
    dealt = 0
    for file in files:
        count = len(file.crcs)
        blocks = range((part - dealt) % parts, count, parts)
        dealt += count
        if blocks:
            yield file, blocks


def _check_block(path: Path, fd: int, file: File, block: int, buffer: memoryview) -> None:
    begin, end = block * BLOCK, min((block + 1) * BLOCK, file.size)
    crc = 0
    for place in range(begin, end, BITE):
        bite = buffer[: min(BITE, end - place)]
        read_fully(path, fd, place, bite)
        crc = zlib.crc32(bite, crc)
    if crc != file.crcs[block]:
        raise Damaged(path, f"is damaged: the CRC of bytes {begin} to {end} is not what was written")


def read_fully(path: Path, fd: int, offset: int, target: memoryview) -> None:
    """Raises Damaged where the file is too short, and OSError."""
    done = 0
    while done < len(target):
        count = os.preadv(fd, [target[done:]], offset + done)
        if count == 0:
            raise Damaged(path, f"ends at byte {offset + done}")
        done += count


def check(folder: Path) -> Manifest:
    """The manifest and the sizes, without reading the data; raises Damaged."""
    manifest = read_manifest(folder)
    name = names.parse(folder.name)
    if name is not None and name.step != manifest.step:
        raise Damaged(folder / names.MANIFEST, f"is of step {manifest.step}")
    check_sizes(folder, manifest.files)
    return manifest


def check_all(folder: Path) -> Manifest:
    """Reads everything; raises Damaged."""
    manifest = check(folder)
    check_blocks(folder, manifest.files)
    return manifest
