"""Which rank of how many this process is, as whoever started it tells: torchrun, echelon, MPI, srun, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from echelon.errors import ConfigError
from echelon.runtime.detectors import DETECTORS, TORCHRUN, Told, asked_port, number


@dataclass(frozen=True, kw_only=True)
class Rank:
    """This process's place in the world."""

    rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    main_address: str | None = None
    """Where rank 0 is; None where nobody says, and a world of one needs none."""
    main_port: int | None = None
    source: str = "alone"
    session: str = ""
    """Equal for all ranks of one start and different for every other start, as far as the launcher tells."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Rank:
        """Asks the detectors in their order; the first that knows is believed. Raises ConfigError."""
        told: Told | None = None
        for detect in DETECTORS:
            found = detect(environ)
            told = told.filled(found) if told and found else told or found
            if told is not None and told.complete:
                break
        return _alone(environ) if told is None else _settled(environ, told)


def _alone(environ: Mapping[str, str]) -> Rank:
    size = number(environ, TORCHRUN.world_size)
    if size is None or size.value == 1:
        return Rank()
    raise ConfigError(
        f"{size}, but RANK is not set",
        origin="WORLD_SIZE",
        why="nobody says which rank this process is: not torchrun, echelon, srun or mpirun",
        hint="start it with echelon run, torchrun, srun or mpirun, or unset WORLD_SIZE for a world of one",
    )


def _settled(environ: Mapping[str, str], told: Told) -> Rank:
    """What nobody says is taken for one node, or for equal nodes filled one after the other."""
    local_size = told.local_world_size or told.world_size
    return Rank(
        rank=told.rank,
        local_rank=told.rank % local_size if told.local_rank is None else told.local_rank,
        node_rank=told.rank // local_size if told.node_rank is None else told.node_rank,
        world_size=told.world_size,
        local_world_size=local_size,
        main_address=environ.get("MASTER_ADDR") or told.main_address,
        main_port=asked_port(environ) or told.main_port,
        source=told.source,
        session=told.session or "",
    )
