"""Removes the checkpoints that may go, after a new one is safe."""

from __future__ import annotations

from pathlib import Path

from echelon.runtime.checkpoint.names import Name
from echelon.runtime.checkpoint.retention import Kept, Retention, dispensable
from echelon.runtime.checkpoint.verify import Damaged, check, committed
from echelon.runtime.checkpoint.writer import discard


def prune(folder: Path, rules: Retention, *, new: str) -> list[Name]:
    """What was removed, and never the new one. Manifest and sizes of all are looked at first, so that a damaged one
    never counts as kept.
    """
    present = [_looked_at(folder, name) for name in committed(folder)]
    gone = [name for name in dispensable(present, rules) if str(name) != new]
    for name in gone:
        discard(folder / str(name))
    return gone


def _looked_at(folder: Path, name: Name) -> Kept:
    try:
        manifest = check(folder / str(name))
    except Damaged:
        return Kept(name=name, good=False)
    return Kept(name=name, good=True, score=manifest.score, parent=manifest.parent)
