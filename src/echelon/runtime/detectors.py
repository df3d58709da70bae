"""What each launcher says of a process, one pure detector each, and the order in which they are believed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from echelon.errors import ConfigError
from echelon.runtime import slurm_step

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 29_500
MAX_PORT = 65_535


class Variable(NamedTuple):
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} is {self.value}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one launcher says of this process; None where it does not say."""

    source: str
    rank: int
    world_size: int
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    main_address: str | None = None
    main_port: int | None = None
    session: str | None = None

    @property
    def complete(self) -> bool:
        places = (self.local_rank, self.local_world_size, self.node_rank, self.main_address, self.main_port)
        return self.world_size == 1 or None not in places

    def filled(self, other: Told) -> Told:
        """Its gaps filled by a launcher around it that means the same rank: `export RANK=$SLURM_PROCID` under srun."""
        gaps = {field.name for field in fields(self) if getattr(self, field.name) is None}
        both = replace(self, **{name: getattr(other, name) for name in gaps})
        agree = all(getattr(other, name) in (None, getattr(both, name)) for name in PLACES)
        return both if agree and both.fits else self

    @property
    def fits(self) -> bool:
        rank, size = self.local_rank, self.local_world_size
        return rank is None or size is None or rank < size


PLACES = ("rank", "world_size", "local_rank", "local_world_size", "node_rank")


@dataclass(frozen=True, kw_only=True)
class Names:
    """The variables of one launcher; of several spellings the first that is set counts."""

    source: str
    rank: tuple[str, ...]
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_world_size: tuple[str, ...]
    node_rank: tuple[str, ...] = ()
    session: tuple[str, ...] = ()


TORCHRUN = Names(
    source="torchrun",
    rank=("RANK",),
    world_size=("WORLD_SIZE",),
    local_rank=("LOCAL_RANK",),
    local_world_size=("LOCAL_WORLD_SIZE",),
    node_rank=("GROUP_RANK", "NODE_RANK"),
    session=("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
)
OPEN_MPI = Names(  # its NODE_RANK counts the processes of a node, not the nodes
    source="Open MPI",
    rank=("OMPI_COMM_WORLD_RANK",),
    world_size=("OMPI_COMM_WORLD_SIZE",),
    local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
    local_world_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
    session=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PBS_JOBID"),
)
MVAPICH2 = Names(
    source="MVAPICH2",
    rank=("MV2_COMM_WORLD_RANK",),
    world_size=("MV2_COMM_WORLD_SIZE",),
    local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
    local_world_size=("MV2_COMM_WORLD_LOCAL_SIZE",),
    session=("SLURM_JOB_ID", "PBS_JOBID"),
)
PMI = Names(
    source="PMI",
    rank=("PMI_RANK", "PALS_RANKID"),
    world_size=("PMI_SIZE", "PALS_SIZE"),
    local_rank=("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    local_world_size=("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    node_rank=("PALS_NODEID",),
    session=("PALS_APID", "SLURM_JOB_ID", "PBS_JOBID"),
)
SRUN = Names(
    source="srun",
    rank=("SLURM_PROCID",),
    world_size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),  # of the step: a shell in an allocation of 8 is one task
    local_rank=("SLURM_LOCALID",),
    local_world_size=(),
    node_rank=("SLURM_NODEID",),
    session=("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)


def torchrun(environ: Mapping[str, str]) -> Told | None:
    told = _read(environ, TORCHRUN)
    if told is None:
        return None
    launchers = {"ECHELON_RUN_ID": "echelon", "TORCHELASTIC_RUN_ID": "torchrun"}
    return replace(
        told,
        source=next((who for name, who in launchers.items() if environ.get(name)), "RANK"),
        main_address=environ.get("MASTER_ADDR") or None,
        main_port=asked_port(environ),
    )


def open_mpi(environ: Mapping[str, str]) -> Told | None:
    return _as_by_mpirun(environ, _read(environ, OPEN_MPI))


def mvapich2(environ: Mapping[str, str]) -> Told | None:
    return _as_by_mpirun(environ, _read(environ, MVAPICH2))


def mpiexec(environ: Mapping[str, str]) -> Told | None:
    return pmi(environ) if any(environ.get(name) for name in PMI.local_rank) else None


def srun(environ: Mapping[str, str]) -> Told | None:
    if not environ.get("SLURM_STEP_ID"):
        return None  # a batch shell: it has SLURM_PROCID=0 and SLURM_NTASKS, and is no rank
    told = _read(environ, SRUN)
    if told is None or told.world_size == 1:
        return told
    job, step = number(environ, ("SLURM_JOB_ID",)), number(environ, ("SLURM_STEP_ID",))
    return replace(
        told,
        local_world_size=_tasks_here(environ, told),
        main_address=next(iter(slurm_step.hosts(environ)), None) or environ.get("SLURM_LAUNCH_NODE_IPADDR") or None,
        main_port=slurm_step.port(job.value, step.value) if job and step else None,
    )


def pmi(environ: Mapping[str, str]) -> Told | None:
    return _as_by_mpirun(environ, _read(environ, PMI))


DETECTORS: tuple[Callable[[Mapping[str, str]], Told | None], ...] = (
    torchrun,  # first: torchrun, our agent and hand-made exports run inside srun or mpirun, whose variables stay
    open_mpi,  # before srun: mpirun starts its daemons by srun, and ranks inherit SLURM_PROCID of the daemon
    mvapich2,  # before srun for the same reason
    mpiexec,  # before srun for the same reason; the local rank tells it from srun --mpi=pmi2, which sets PMI_RANK too
    srun,  # before plain PMI: srun --mpi=pmi2 sets both, and srun knows the nodes
    pmi,  # last: it says least
)


def _read(environ: Mapping[str, str], names: Names) -> Told | None:
    rank, size = number(environ, names.rank), number(environ, names.world_size)
    if rank is None:
        return None
    if size is None:
        raise ConfigError(f"{rank}, but {names.world_size[0]} is not set", origin=rank.name)
    local_rank, local_size = number(environ, names.local_rank), number(environ, names.local_world_size)
    node_rank = number(environ, names.node_rank)
    for index, count in ((rank, size), (local_rank, local_size or size), (node_rank, size)):
        _check_below(index, count)
    if local_size is not None and not 1 <= local_size.value <= size.value:
        raise ConfigError(f"{local_size}, but {size}", origin=f"{local_size.name}, {size.name}")
    return Told(
        source=names.source,
        rank=rank.value,
        world_size=size.value,
        local_rank=local_rank.value if local_rank else None,
        local_world_size=local_size.value if local_size else None,
        node_rank=node_rank.value if node_rank else None,
        session=".".join(environ[name] for name in names.session if environ.get(name)) or None,
    )


def number(environ: Mapping[str, str], names: tuple[str, ...]) -> Variable | None:
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    text = environ[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ConfigError(f"{name} is {text!r}, which is not a whole number from 0 up", origin=name)
    return Variable(name, int(text))


def _check_below(index: Variable | None, count: Variable) -> None:
    if index is not None and index.value >= count.value:
        raise ConfigError(
            f"{index}, but {count}",
            origin=f"{index.name}, {count.name}",
            why=f"{index.name} counts from 0 and stays below {count.name}",
        )


def _tasks_here(environ: Mapping[str, str], told: Told) -> int | None:
    counts = slurm_step.tasks_per_node(environ)
    if told.node_rank is None or told.node_rank >= len(counts):
        return None
    count = counts[told.node_rank]
    if told.local_rank is not None and told.local_rank >= count:
        name = next(name for name in slurm_step.TASK_COUNTS if environ.get(name))
        raise ConfigError(
            f"SLURM_LOCALID is {told.local_rank}, but {name} is {environ[name]!r}", origin=f"SLURM_LOCALID, {name}"
        )
    return min(count, told.world_size)


def _as_by_mpirun(environ: Mapping[str, str], told: Told | None) -> Told | None:
    """mpirun has no word for where rank 0 is: this node if there is no other, or the first of the allocation."""
    if told is None:
        return None
    first = next(iter(slurm_step.hosts(environ, ("SLURM_JOB_NODELIST",))), None)
    return replace(
        told,
        main_address=LOOPBACK if told.local_world_size == told.world_size else first,
        main_port=_port_of(told.session) if told.session else DEFAULT_PORT,
    )


def _port_of(session: str) -> int:
    return slurm_step.FIRST_PORT + zlib.crc32(session.encode(errors="replace")) % slurm_step.PORTS


def asked_port(environ: Mapping[str, str]) -> int | None:
    port = number(environ, ("MASTER_PORT",))
    if port is not None and not 1 <= port.value <= MAX_PORT:
        raise ConfigError(f"{port}, which is not a port", origin="MASTER_PORT")
    return port.value if port else None
