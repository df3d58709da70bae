"""Listing of committed checkpoints, and their verification by manifest, sizes and CRCs. It does not need torch."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from echelon.record import record
from echelon.train.checkpoint import file_format
from echelon.train.checkpoint import file_format as manifests
from echelon.train.checkpoint.file_format import BLOCK_BYTES, CheckpointName, Manifest, ShardFile
from echelon.untrusted import open_regular, read_regular

READ_CHUNK_BYTES = 1 << 18
"""Bytes read at a time: they are still in the processor's cache when their CRC is computed."""


class DamagedCheckpoint(Exception):  # noqa: N818  the message describes the state of a file
    """A checkpoint is damaged. The message names the file and the problem."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path.parent.name}/{path.name} {what}")
        self.path = path


def committed_checkpoints(folder: Path) -> list[CheckpointName]:
    """All checkpoints in commit order, oldest first. After a return to step 500, step 600 is committed after 2000."""
    return _in_commit_order(folder, _read_manifests(folder))


def resume_candidates(folder: Path, step: int | None) -> list[CheckpointName]:
    """The checkpoints of `step`, or all, in the order in which to try to resume from them."""
    found = _read_manifests(folder)
    descents = [
        LineageEntry(name=name, parent=manifest.parent if (manifest := found[name]) is not None else None)
        for name in _in_commit_order(folder, found)
    ]
    return [name for name in order_by_lineage(descents) if step in (None, name.step)]


def _in_commit_order(folder: Path, found: Mapping[CheckpointName, Manifest | None]) -> list[CheckpointName]:
    commits = [(manifest.time, manifest.commit) for manifest in found.values() if manifest is not None]

    def age(name: CheckpointName) -> tuple[int, float, CheckpointName]:
        manifest = found[name]
        if manifest is not None:
            return manifest.commit, manifest.time, name
        changed = _modification_time(folder / str(name))  # the best estimate if the manifest cannot be read
        return max((commit for time, commit in commits if time <= changed), default=0), changed, name

    return sorted(found, key=age)


def next_commit_number(folder: Path) -> int:
    """The number of the next commit: one more than the largest in the folder."""
    return 1 + max(
        (manifest.commit for manifest in _read_manifests(folder).values() if manifest is not None), default=0
    )


def _read_manifests(folder: Path) -> dict[CheckpointName, Manifest | None]:
    """The manifest of each checkpoint; None if it cannot be read."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208  only the names are needed
    except OSError:
        return {}
    found = [name for name in map(file_format.parse_checkpoint_name, entries) if name is not None]
    return {name: _manifest_or_none(folder / str(name)) for name in found}


def _manifest_or_none(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except DamagedCheckpoint:
        return None


def _modification_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of one checkpoint. Raises DamagedCheckpoint."""
    path = folder / file_format.MANIFEST_FILE
    try:
        return manifests.decode_manifest(read_regular(path))
    except FileNotFoundError as error:
        raise DamagedCheckpoint(path, "is missing") from error
    except OSError as error:
        raise DamagedCheckpoint(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DamagedCheckpoint(path, f"is damaged: {error}") from error


def check_sizes(folder: Path, files: Sequence[ShardFile]) -> None:
    """Raises DamagedCheckpoint if a file is missing or its size is wrong. Makes one stat call for each file."""
    for file in files:
        path = folder / file.name
        try:
            size = path.lstat().st_size
        except OSError as error:
            raise DamagedCheckpoint(
                path, "is missing" if isinstance(error, FileNotFoundError) else str(error)
            ) from error
        if size != file.size:
            raise DamagedCheckpoint(path, f"has {size} bytes, but had {file.size} when it was committed")


def check_blocks(folder: Path, files: Sequence[ShardFile], *, part: int = 0, parts: int = 1) -> None:
    """Checks the CRC of every `parts`-th block, starting with block `part`. All parts together check all blocks.

    Raises DamagedCheckpoint.
    """
    buffer = memoryview(bytearray(READ_CHUNK_BYTES))
    for file, blocks in _assigned_blocks(files, part, parts):
        path = folder / file.name
        try:
            with open(open_regular(path), "rb", buffering=0) as source:  # noqa: PTH123  opens a file descriptor
                for block in blocks:
                    _check_block(path, source.fileno(), file, block, buffer)
        except OSError as error:
            raise DamagedCheckpoint(path, f"cannot be read: {error.strerror}") from error


def _assigned_blocks(files: Sequence[ShardFile], part: int, parts: int) -> Iterator[tuple[ShardFile, range]]:
    """The blocks of each file that belong to this part. Blocks are numbered continuously over all files."""
    dealt = 0
    for file in files:
        count = len(file.crcs)
        blocks = range((part - dealt) % parts, count, parts)
        dealt += count
        if blocks:
            yield file, blocks


def _check_block(path: Path, fd: int, file: ShardFile, block: int, buffer: memoryview) -> None:
    begin, end = block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, file.size)
    crc = 0
    for place in range(begin, end, READ_CHUNK_BYTES):
        bite = buffer[: min(READ_CHUNK_BYTES, end - place)]
        read_fully(path, fd, place, bite)
        crc = zlib.crc32(bite, crc)
    if crc != file.crcs[block]:
        raise DamagedCheckpoint(
            path, f"is damaged: the CRC of bytes {begin} to {end} differs from the one that was written"
        )


def read_fully(path: Path, fd: int, offset: int, target: memoryview) -> None:
    """Fills the target. Raises DamagedCheckpoint if the file is too short, and OSError."""
    done = 0
    while done < len(target):
        count = os.preadv(fd, [target[done:]], offset + done)
        if count == 0:
            raise DamagedCheckpoint(path, f"ends at byte {offset + done}")
        done += count


def verify_manifest_and_sizes(folder: Path) -> Manifest:
    """Checks the manifest and the file sizes without reading the data. Raises DamagedCheckpoint."""
    manifest = read_manifest(folder)
    name = file_format.parse_checkpoint_name(folder.name)
    if name is not None and name.step != manifest.step:
        raise DamagedCheckpoint(folder / file_format.MANIFEST_FILE, f"is of step {manifest.step}")
    check_sizes(folder, manifest.files)
    return manifest


def verify_checkpoint(folder: Path) -> Manifest:
    """Checks the manifest, the file sizes and all CRCs, which reads all data. Raises DamagedCheckpoint."""
    manifest = verify_manifest_and_sizes(folder)
    check_blocks(folder, manifest.files)
    return manifest


@record
class LineageEntry:
    """A checkpoint and its parent: the checkpoint that its training continued from."""

    name: CheckpointName
    parent: str | None = None
    """Empty if training started from step 0. None if it is unknown: the manifest is unreadable or of an old version."""


def order_by_lineage(found: Sequence[LineageEntry]) -> list[CheckpointName]:
    """The names in the order in which to try them: the last commit, its parent, the parent of that one and so on, and
    then the rest, newest commit first. `found` is in commit order, oldest first."""
    earlier, line = list(found), []
    while earlier:
        one = earlier.pop()
        line.append(one.name)
        del earlier[_count_up_to_ancestor(earlier, one.parent) :]
    return line + [one.name for one in reversed(found) if one.name not in line]


def _count_up_to_ancestor(earlier: Sequence[LineageEntry], parent: str | None) -> int:
    """The number of entries up to and including the ancestor; 0 if it has none.

    If the parent is unknown, the ancestor is the previous commit. If the parent was removed, it is the last commit with
    a step that is not later than the parent's: a later step belongs to another branch of training.
    """
    if parent == "":
        return 0
    origin = None if parent is None else file_format.parse_checkpoint_name(parent)
    if origin is None:
        return len(earlier)
    exact = [count for count, one in enumerate(earlier, start=1) if one.name == origin]
    likely = [count for count, one in enumerate(earlier, start=1) if one.name.step <= origin.step]
    return max(exact or likely, default=0)
