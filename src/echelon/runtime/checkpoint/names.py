"""What the folders and files of checkpoints are called. Nobody else spells one."""

from __future__ import annotations

import re
from dataclasses import dataclass

MANIFEST = "MANIFEST.json"
LOCK = ".lock"
TEMPORARY = ".tmp-"
DISCARDED = ".gone-"

_STEP = re.compile(r"step-([0-9]{8,18})(?:\.([1-9][0-9]{0,8}))?")


@dataclass(frozen=True, order=True)
class Name:
    """A committed checkpoint. A step that is saved again gets the next take: nothing is ever overwritten."""

    step: int
    take: int = 0

    def __str__(self) -> str:
        return f"step-{self.step:08d}" + (f".{self.take}" if self.take else "")

    @property
    def next_take(self) -> Name:
        return Name(self.step, self.take + 1)


def parse(text: str) -> Name | None:
    """None for whatever is no committed checkpoint."""
    match = _STEP.fullmatch(text)
    if match is None:
        return None
    name = Name(int(match.group(1)), int(match.group(2) or 0))
    return name if str(name) == text else None


def temporary(step: int, token: str) -> str:
    return f"{TEMPORARY}{step}-{token}"


def probe(token: str) -> str:
    return f"{TEMPORARY}probe-{token}"


def discarded(token: str) -> str:
    return f"{DISCARDED}{token}"


def is_debris(text: str) -> bool:
    """Left by a save that never came to its end."""
    return text.startswith((TEMPORARY, DISCARDED))


def shard(rank: int) -> str:
    return f"rank-{rank}.bin"
