"""The ranks, their store and own process groups, as torch.distributed reports them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from echelon.errors import ConfigError
from echelon.train.rank import Rank
from echelon.train.store import SignedStore, store_secret

_checkpoint_count = 0
"""Number of Checkpoints of this process. All ranks create them in the same order, so it distinguishes their keys."""


@dataclass(frozen=True, kw_only=True)
class ProcessGroupInfo:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Number of ranks with the same page cache, according to the launcher."""
    number: int = 0
    store: Any = None
    group: Any = None
    """The group for echelon's collectives in the main thread. It uses gloo with any backend of the script."""

    def keys(self, prefix: str) -> Any:
        """The store with a separate key prefix; None if there is only one rank."""
        if self.store is None:
            return None
        from torch.distributed import PrefixStore

        scope = f"echelon/checkpoint/{self.number}/{prefix}"
        return SignedStore(PrefixStore(scope, self.store), scope=scope, secret=store_secret())

    def print_on_rank_0(self, sentence: str) -> None:
        if self.rank == 0:
            print(f"echelon: {sentence}", file=sys.stderr, flush=True)


def create_process_group() -> ProcessGroupInfo:
    """All ranks must call this together: it creates a process group. Raises ConfigError if several ranks have none."""
    import torch.distributed as dist

    global _checkpoint_count
    _checkpoint_count += 1
    if not (dist.is_available() and dist.is_initialized()):
        _refuse_missing_group()
        return ProcessGroupInfo(number=_checkpoint_count)
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return ProcessGroupInfo(number=_checkpoint_count)
    local_rank, local_size = _local_rank_and_size(rank, size)
    return ProcessGroupInfo(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        number=_checkpoint_count,
        store=dist.distributed_c10d._get_default_store(),
        group=_new_group(),
    )


def _new_group() -> Any:
    """The group for echelon's collectives, with a description by which diagnosis leaves them out."""
    import torch.distributed as dist

    try:
        return dist.new_group(backend="gloo", group_desc="echelon")
    except TypeError:  # older versions of torch have no descriptions
        return dist.new_group(backend="gloo")


def _local_rank_and_size(rank: int, size: int) -> tuple[int, int]:
    """Local rank and size from the launcher if its rank and size equal those of the group; otherwise 0 and 1."""
    try:
        detected = Rank.from_environ(os.environ)
    except ConfigError:
        return 0, 1
    return (
        (detected.local_rank, detected.local_world_size)
        if (detected.rank, detected.world_size) == (rank, size)
        else (0, 1)
    )


def _refuse_missing_group() -> None:
    """Raises ConfigError if there are several ranks: without a process group, all would write the same files."""
    detected = Rank.from_environ(os.environ)
    if detected.world_size > 1:
        raise ConfigError(
            f"rank {detected.rank} of {detected.world_size} has no process group",
            origin=f"echelon.Checkpoint; rank and size from {detected.source}",
            hint="call echelon.join() first",
        )
