"""What makes a folder of bytes a checkpoint: which files it has, how long they are, and what their bytes add up to."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from echelon.codec import decode, encode
from echelon.runtime.checkpoint import names

VERSION = 1
BLOCK = 16 << 20
"""Bytes per CRC: small enough to share the checking out, large enough to cost nothing."""


@dataclass(frozen=True, kw_only=True)
class File:
    """What one rank wrote: its share of the common bytes, its own bytes, and an index of both in JSON at the end."""

    name: str
    size: int
    crcs: tuple[int, ...]
    """One for each BLOCK bytes."""
    begin: int
    """Where in the common bytes its share begins; the share is the file's front."""
    end: int
    index: int
    """Where in the file the index begins."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    version: int
    step: int
    time: float
    files: tuple[File, ...]
    commit: int = 0
    """Counts the commits to a folder, so that their order is known whatever the clocks of hosts say."""
    parent: str | None = None
    """The checkpoint that training came from, which is the last one it saved or loaded; empty for none."""
    score: float | None = None
    run: str = ""
    attempt: int = 0
    generation: int = 0

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def to_bytes(manifest: Manifest) -> bytes:
    body = encode(manifest)
    return json.dumps({"crc": _crc(body), "manifest": body}, indent=1).encode()


def from_bytes(data: bytes) -> Manifest:
    """Raises ValueError, with a sentence, for anything that `to_bytes` did not write."""
    try:
        both = json.loads(data)
        body, crc = both["manifest"], both["crc"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is torn, or no manifest at all") from error
    if crc != _crc(body):
        raise ValueError("its CRC does not match what it says")
    if not isinstance(body, dict) or body.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}, which this echelon reads")
    return _checked(decode(Manifest, body))


def _crc(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _checked(manifest: Manifest) -> Manifest:
    place = 0
    for rank, file in enumerate(manifest.files):
        if file.name != names.shard(rank):
            raise ValueError(f"it lists {file.name!r} where {names.shard(rank)} belongs")
        if file.begin != place or not 0 <= file.end - file.begin <= file.index <= file.size:
            raise ValueError(f"what it says of {file.name} does not add up")
        if len(file.crcs) != blocks_of(file.size):
            raise ValueError(f"it has {len(file.crcs)} CRCs for the {blocks_of(file.size)} blocks of {file.name}")
        place = file.end
    if not manifest.files:
        raise ValueError("it lists no files")
    return manifest


def blocks_of(size: int) -> int:
    return -(-size // BLOCK)
