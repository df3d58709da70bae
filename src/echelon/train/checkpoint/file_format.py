"""Names of checkpoint folders and files, and the manifest."""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import dataclass
from typing import Any

from echelon.codec import decode, encode
from echelon.record import record
from echelon.untrusted import parse_json

MANIFEST_FILE = "MANIFEST.json"
LOCK_FILE = ".lock"
TEMPORARY_PREFIX = ".tmp-"
DISCARDED_PREFIX = ".gone-"
_NAME_PATTERN = re.compile(r"step-([0-9]{8,18})(?:\.([1-9][0-9]{0,8}))?")


@dataclass(frozen=True, order=True)
class CheckpointName:
    """The name of a committed checkpoint. A step that is saved again gets the next `take`: nothing is overwritten."""

    step: int
    take: int = 0

    def __str__(self) -> str:
        return f"step-{self.step:08d}" + (f".{self.take}" if self.take else "")

    @property
    def next_take(self) -> CheckpointName:
        return CheckpointName(self.step, self.take + 1)


def parse_checkpoint_name(text: str) -> CheckpointName | None:
    """None if the text is not the name of a committed checkpoint."""
    match = _NAME_PATTERN.fullmatch(text)
    if match is None:
        return None
    name = CheckpointName(int(match.group(1)), int(match.group(2) or 0))
    return name if str(name) == text else None


def temporary_folder_name(step: int, token: str) -> str:
    return f"{TEMPORARY_PREFIX}{step}-{token}"


def probe_folder_name(token: str) -> str:
    return f"{TEMPORARY_PREFIX}probe-{token}"


def discarded_folder_name(token: str) -> str:
    return f"{DISCARDED_PREFIX}{token}"


def is_leftover(text: str) -> bool:
    """Whether this is the name of a folder that an interrupted save or removal left behind."""
    return text.startswith((TEMPORARY_PREFIX, DISCARDED_PREFIX))


def shard_file_name(rank: int) -> str:
    return f"rank-{rank}.bin"


MANIFEST_VERSION = 1
BLOCK_BYTES = 16 << 20
"""Bytes per CRC: small enough that ranks can share the check, large enough that the CRCs take little space."""


@record
class ShardFile:
    """The file of one rank: its share of the common bytes, its own bytes, and a JSON index of both at the end."""

    name: str
    size: int
    crcs: tuple[int, ...]
    """One CRC for each block of 16 MiB."""
    begin: int
    """Offset of its share in the common bytes. The share is at the start of the file."""
    end: int
    index: int
    """Offset of the index in the file."""


@record
class Manifest:
    version: int
    step: int
    time: float
    files: tuple[ShardFile, ...]
    commit: int = 0
    """Number of this commit in its folder. It gives the order of commits even if the clocks of hosts differ."""
    parent: str | None = None
    """The checkpoint that training continued from: the last one it saved or loaded. Empty if there is none."""
    score: float | None = None
    run: str = ""
    attempt: int = 0
    generation: int = 0

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    body = encode(manifest)
    return json.dumps({"crc": _manifest_crc(body), "manifest": body}, indent=1).encode()


def decode_manifest(data: bytes) -> Manifest:
    """Raises ValueError, with a sentence, for data that is not an intact manifest."""
    try:
        both = parse_json(data)
        body, crc = both["manifest"], both["crc"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("it is incomplete or not a manifest") from error
    if crc != _manifest_crc(body):
        raise ValueError("its CRC does not match its content")
    if not isinstance(body, dict) or body.get("version") != MANIFEST_VERSION:
        raise ValueError(f"its version is not {MANIFEST_VERSION}, which this version of Echelon reads")
    return _validated_manifest(decode(Manifest, body))


def _manifest_crc(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _validated_manifest(manifest: Manifest) -> Manifest:
    if manifest.step < 0 or manifest.commit < 0 or not math.isfinite(manifest.time):
        raise ValueError("its step, commit or time is out of range")
    place = 0
    for rank, file in enumerate(manifest.files):
        if file.name != shard_file_name(rank):
            raise ValueError(f"it lists {file.name!r} instead of {shard_file_name(rank)}")
        if file.begin != place or not 0 <= file.end - file.begin <= file.index <= file.size:
            raise ValueError(f"its sizes of {file.name} are inconsistent")
        if len(file.crcs) != block_count(file.size):
            raise ValueError(f"it has {len(file.crcs)} CRCs for the {block_count(file.size)} blocks of {file.name}")
        place = file.end
    if not manifest.files:
        raise ValueError("it lists no files")
    return manifest


def block_count(size: int) -> int:
    return -(-size // BLOCK_BYTES)
