"""Echelon runs a PyTorch script on the nodes of Slurm, PBS, ssh hosts or one machine, and restarts it after faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.version import __version__

if TYPE_CHECKING:
    from echelon.train.checkpoint.api import Checkpoint
    from echelon.train.progress import notice_given, report
    from echelon.train.rank import Rank
    from echelon.train.sampler import ElasticSampler
    from echelon.train.trainer import Trainer
    from echelon.train.world import World, join

__all__ = ["Checkpoint", "ElasticSampler", "Rank", "Trainer", "World", "__version__", "join", "notice_given", "report"]

_HOME = {
    "Checkpoint": "echelon.train.checkpoint.api",
    "ElasticSampler": "echelon.train.sampler",
    "Rank": "echelon.train.rank",
    "Trainer": "echelon.train.trainer",
    "World": "echelon.train.world",
    "join": "echelon.train.world",
    "notice_given": "echelon.train.progress",
    "report": "echelon.train.progress",
}


def __getattr__(name: str) -> object:
    """Imports a public name on first use, so that the command line does not import the library."""
    if name not in _HOME:
        raise AttributeError(f"module 'echelon' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
