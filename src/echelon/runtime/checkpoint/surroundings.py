"""Who else is there, as torch.distributed tells: the ranks, the store they share, and groups of our own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from echelon.errors import ConfigError
from echelon.runtime.rank import Rank

_checkpoints = 0
"""How many this process has made: all ranks make them in the same order, so it tells their keys apart."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Ranks that see the same page cache, as far as the launcher tells."""
    number: int = 0
    store: Any = None
    group: Any = None
    """For collectives of ours in the main thread, on gloo whatever the script's own backend."""

    def keys(self, prefix: str) -> Any:
        """The store with keys apart from everybody else's; None alone."""
        if self.store is None:
            return None
        from torch.distributed import PrefixStore

        return PrefixStore(f"echelon/checkpoint/{self.number}/{prefix}", self.store)


def look_around() -> Surroundings:
    """All ranks call it together: it makes a process group."""
    import torch.distributed as dist

    global _checkpoints
    _checkpoints += 1
    if not (dist.is_available() and dist.is_initialized()):
        _refuse_forgotten_group()
        return Surroundings(number=_checkpoints)
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return Surroundings(number=_checkpoints)
    local_rank, local_size = _place(rank, size)
    return Surroundings(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        number=_checkpoints,
        store=dist.distributed_c10d._get_default_store(),
        group=dist.new_group(backend="gloo"),
    )


def _place(rank: int, size: int) -> tuple[int, int]:
    """Local rank and size where the launcher's word fits the group; otherwise each rank is on its own."""
    try:
        told = Rank.from_environ(os.environ)
    except ConfigError:
        return 0, 1
    return (told.local_rank, told.local_world_size) if (told.rank, told.world_size) == (rank, size) else (0, 1)


def _refuse_forgotten_group() -> None:
    """Several ranks that do not know of each other would all write the same files."""
    told = Rank.from_environ(os.environ)
    if told.world_size > 1:
        raise ConfigError(
            f"this is rank {told.rank} of {told.world_size}, and there is no process group",
            origin=f"echelon.Checkpoint; the ranks as {told.source} tells",
            hint="call echelon.join() first",
        )
