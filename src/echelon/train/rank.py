"""Rank, local rank and size of this process, its GPU, and its equal share of a list."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.record import record
from echelon.train.detectors import DETECTORS, TORCHRUN, DetectedRank, read_main_port, read_number


@record
class Rank:
    """Ranks, world sizes and rendezvous address of this process. The defaults describe a process without peers."""

    rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    main_address: str | None = None
    """Address of rank 0; None if no launcher sets it. A world of one rank needs none."""
    main_port: int | None = None
    source: str = "alone"
    session: str = ""
    """Equal for all ranks of one start and different for every other start, as far as the launcher identifies it."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Rank:
        """The first detector that finds a rank takes precedence; later ones only fill its gaps. Raises ConfigError."""
        detected: DetectedRank | None = None
        for detect in DETECTORS:
            found = detect(environ)
            detected = detected.with_gaps_from(found) if detected and found else detected or found
            if detected is not None and detected.is_complete:
                break
        return _single_rank(environ) if detected is None else _with_defaults(environ, detected)


def _single_rank(environ: Mapping[str, str]) -> Rank:
    size = read_number(environ, TORCHRUN.world_size)
    if size is None or size.value == 1:
        return Rank()
    raise ConfigError(
        f"{size}, but RANK is not set",
        origin="WORLD_SIZE",
        why="the rank of this process is unknown: torchrun, echelon, srun or mpirun did not start it",
        hint="start it with echelon run, torchrun, srun or mpirun, or unset WORLD_SIZE to run one rank",
    )


def _with_defaults(environ: Mapping[str, str], detected: DetectedRank) -> Rank:
    """Derives the values that no launcher sets.

    Without a local world size, all ranks are on one node. Otherwise nodes are equal and filled one after the other.
    """
    local_size = detected.local_world_size or detected.world_size
    return Rank(
        rank=detected.rank,
        local_rank=detected.rank % local_size if detected.local_rank is None else detected.local_rank,
        node_rank=detected.rank // local_size if detected.node_rank is None else detected.node_rank,
        world_size=detected.world_size,
        local_world_size=local_size,
        main_address=environ.get("MASTER_ADDR") or detected.main_address,
        main_port=read_main_port(environ) or detected.main_port,
        source=detected.source,
        session=detected.session or "",
    )


def items_per_rank(length: int, size: int, *, drop: bool) -> int:
    """Items per rank: rounded down with `drop`, rounded up without it."""
    return length // size if drop else -(-length // size)


def shard_positions(length: int, rank: int, size: int, *, drop: bool) -> list[int]:
    """Every `size`-th position, starting at `rank`. Past the end it wraps around, unless `drop` leaves the rest out."""
    return [(rank + size * turn) % length for turn in range(items_per_rank(length, size, drop=drop))]


def shard_note(length: int, size: int, *, drop: bool) -> str | None:
    """A note about repeated or omitted items; None if each item is used exactly once."""
    each = items_per_rank(length, size, drop=drop)
    uneven = abs(each * size - length)
    if not uneven:
        return None
    if drop:
        return f"{length} items on {size} ranks: {each} each, {uneven} left out"
    return f"{length} items on {size} ranks: {each} each, {uneven} repeated; shard(drop=True) leaves some out instead"


def device_index(visible: int, local_rank: int) -> int:
    """0 if one GPU is visible (srun --gpus-per-task=1), otherwise the local rank. Raises EnvironmentProblem."""
    if visible == 1:
        return 0
    if local_rank < visible:
        return local_rank
    raise EnvironmentProblem(
        f"local rank {local_rank} has no GPU: {visible} are visible here",
        origin="CUDA_VISIBLE_DEVICES, or the node itself",
        hint="start as many ranks on a node as it has GPUs",
    )
