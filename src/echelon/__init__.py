"""Echelon: one PyTorch script, every GPU you can reach, one command, and it keeps running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.version import __version__

if TYPE_CHECKING:
    from echelon.runtime.checkpoint.checkpoint import Checkpoint
    from echelon.runtime.notice import notice_given
    from echelon.runtime.progress import report
    from echelon.runtime.rank import Rank
    from echelon.runtime.sampler import ElasticSampler
    from echelon.runtime.trainer import Trainer
    from echelon.runtime.world import World, join

__all__ = ["Checkpoint", "ElasticSampler", "Rank", "Trainer", "World", "__version__", "join", "notice_given", "report"]

_HOME = {
    "Checkpoint": "echelon.runtime.checkpoint.checkpoint",
    "ElasticSampler": "echelon.runtime.sampler",
    "Rank": "echelon.runtime.rank",
    "Trainer": "echelon.runtime.trainer",
    "World": "echelon.runtime.world",
    "join": "echelon.runtime.world",
    "notice_given": "echelon.runtime.notice",
    "report": "echelon.runtime.progress",
}


def __getattr__(name: str) -> object:
    """Imported when first used: the command line has no need of them, and they have none of the command line."""
    if name not in _HOME:
        raise AttributeError(f"module 'echelon' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
