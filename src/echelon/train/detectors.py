"""One pure detector for each launcher, which reads rank and world size from its variables, and their precedence."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import NamedTuple

from echelon.errors import ConfigError
from echelon.record import record
from echelon.system import hostlist

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 29_500
MAX_PORT = 65_535


class Variable(NamedTuple):
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} is {self.value}"


@record
class DetectedRank:
    """Rank, world size and address of this process as one launcher set them; None if the launcher did not."""

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
    def is_complete(self) -> bool:
        places = (self.local_rank, self.local_world_size, self.node_rank, self.main_address, self.main_port)
        return self.world_size == 1 or None not in places

    def with_gaps_from(self, other: DetectedRank) -> DetectedRank:
        """Fills gaps with the values of an outer launcher if both describe the same rank.

        An example is `export RANK=$SLURM_PROCID` under srun. Otherwise returns itself unchanged.
        """
        gaps = {field.name for field in fields(self) if getattr(self, field.name) is None}
        both = replace(self, **{name: getattr(other, name) for name in gaps})
        agree = all(getattr(other, name) in (None, getattr(both, name)) for name in PLACE_FIELDS)
        return both if agree and both.is_consistent else self

    @property
    def is_consistent(self) -> bool:
        rank, size = self.local_rank, self.local_world_size
        return rank is None or size is None or rank < size


PLACE_FIELDS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank")


@record
class LauncherVariables:
    """The variable names of one launcher. If there are several for a value, the first that is set is used."""

    source: str
    rank: tuple[str, ...]
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_world_size: tuple[str, ...]
    node_rank: tuple[str, ...] = ()
    session: tuple[str, ...] = ()


TORCHRUN = LauncherVariables(
    source="torchrun",
    rank=("RANK",),
    world_size=("WORLD_SIZE",),
    local_rank=("LOCAL_RANK",),
    local_world_size=("LOCAL_WORLD_SIZE",),
    node_rank=("GROUP_RANK", "NODE_RANK"),
    session=("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
)
OPEN_MPI = LauncherVariables(  # its NODE_RANK numbers the processes of a node, not the nodes
    source="Open MPI",
    rank=("OMPI_COMM_WORLD_RANK",),
    world_size=("OMPI_COMM_WORLD_SIZE",),
    local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
    local_world_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
    session=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PBS_JOBID"),
)
MVAPICH2 = LauncherVariables(
    source="MVAPICH2",
    rank=("MV2_COMM_WORLD_RANK",),
    world_size=("MV2_COMM_WORLD_SIZE",),
    local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
    local_world_size=("MV2_COMM_WORLD_LOCAL_SIZE",),
    session=("SLURM_JOB_ID", "PBS_JOBID"),
)
PMI = LauncherVariables(
    source="PMI",
    rank=("PMI_RANK", "PALS_RANKID"),
    world_size=("PMI_SIZE", "PALS_SIZE"),
    local_rank=("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    local_world_size=("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    node_rank=("PALS_NODEID",),
    session=("PALS_APID", "SLURM_JOB_ID", "PBS_JOBID"),
)
SRUN = LauncherVariables(
    source="srun",
    rank=("SLURM_PROCID",),
    world_size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),  # the step's count: a shell in an allocation of 8 is one task
    local_rank=("SLURM_LOCALID",),
    local_world_size=(),
    node_rank=("SLURM_NODEID",),
    session=("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)


def detect_torchrun(environ: Mapping[str, str]) -> DetectedRank | None:
    detected = _read_variables(environ, TORCHRUN)
    if detected is None:
        return None
    launchers = {"ECHELON_RUN_ID": "echelon", "TORCHELASTIC_RUN_ID": "torchrun"}
    return replace(
        detected,
        source=next((who for name, who in launchers.items() if environ.get(name)), "RANK"),
        main_address=environ.get("MASTER_ADDR") or None,
        main_port=read_main_port(environ),
    )


def detect_open_mpi(environ: Mapping[str, str]) -> DetectedRank | None:
    return _add_main_address(environ, _read_variables(environ, OPEN_MPI))


def detect_mvapich2(environ: Mapping[str, str]) -> DetectedRank | None:
    return _add_main_address(environ, _read_variables(environ, MVAPICH2))


def detect_mpiexec(environ: Mapping[str, str]) -> DetectedRank | None:
    return detect_pmi(environ) if any(environ.get(name) for name in PMI.local_rank) else None


def detect_srun(environ: Mapping[str, str]) -> DetectedRank | None:
    if not environ.get("SLURM_STEP_ID"):
        return None  # a batch shell has SLURM_PROCID=0 and SLURM_NTASKS, but is not a rank
    detected = _read_variables(environ, SRUN)
    if detected is None or detected.world_size == 1:
        return detected
    job, step = read_number(environ, ("SLURM_JOB_ID",)), read_number(environ, ("SLURM_STEP_ID",))
    return replace(
        detected,
        local_world_size=_local_task_count(environ, detected),
        main_address=next(iter(hostlist.step_hosts(environ)), None) or environ.get("SLURM_LAUNCH_NODE_IPADDR") or None,
        main_port=hostlist.step_port(job.value, step.value) if job and step else None,
    )


def detect_pmi(environ: Mapping[str, str]) -> DetectedRank | None:
    return _add_main_address(environ, _read_variables(environ, PMI))


DETECTORS: tuple[Callable[[Mapping[str, str]], DetectedRank | None], ...] = (
    detect_torchrun,  # first: torchrun, our agent and manual exports run inside srun or mpirun, whose variables remain
    detect_open_mpi,  # before srun: mpirun starts its daemons with srun, and ranks inherit the daemon's SLURM_PROCID
    detect_mvapich2,  # before srun for the same reason
    detect_mpiexec,  # before srun for the same reason; srun --mpi=pmi2 sets PMI_RANK too, but not the local rank
    detect_srun,  # before plain PMI: srun --mpi=pmi2 sets both, and only srun sets the nodes
    detect_pmi,  # last: it sets the fewest values
)


def _read_variables(environ: Mapping[str, str], names: LauncherVariables) -> DetectedRank | None:
    rank, size = read_number(environ, names.rank), read_number(environ, names.world_size)
    if rank is None:
        return None
    if size is None:
        raise ConfigError(f"{rank}, but {names.world_size[0]} is not set", origin=rank.name)
    local_rank, local_size = read_number(environ, names.local_rank), read_number(environ, names.local_world_size)
    node_rank = read_number(environ, names.node_rank)
    for index, count in ((rank, size), (local_rank, local_size or size), (node_rank, size)):
        _check_below(index, count)
    if local_size is not None and not 1 <= local_size.value <= size.value:
        raise ConfigError(f"{local_size}, but {size}", origin=f"{local_size.name}, {size.name}")
    return DetectedRank(
        source=names.source,
        rank=rank.value,
        world_size=size.value,
        local_rank=local_rank.value if local_rank else None,
        local_world_size=local_size.value if local_size else None,
        node_rank=node_rank.value if node_rank else None,
        session=".".join(environ[name] for name in names.session if environ.get(name)) or None,
    )


def read_number(environ: Mapping[str, str], names: tuple[str, ...]) -> Variable | None:
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    text = environ[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ConfigError(f"{name} is {text!r}, which is not a whole number of 0 or more", origin=name)
    return Variable(name, int(text))


def _check_below(index: Variable | None, count: Variable) -> None:
    if index is not None and index.value >= count.value:
        raise ConfigError(
            f"{index}, but {count}",
            origin=f"{index.name}, {count.name}",
            why=f"{index.name} counts from 0 and stays below {count.name}",
        )


def _local_task_count(environ: Mapping[str, str], detected: DetectedRank) -> int | None:
    counts = hostlist.tasks_per_node(environ)
    if detected.node_rank is None or detected.node_rank >= len(counts):
        return None
    count = counts[detected.node_rank]
    if detected.local_rank is not None and detected.local_rank >= count:
        name = next(name for name in hostlist.TASK_COUNT_VARIABLES if environ.get(name))
        raise ConfigError(
            f"SLURM_LOCALID is {detected.local_rank}, but {name} is {environ[name]!r}", origin=f"SLURM_LOCALID, {name}"
        )
    return min(count, detected.world_size)


def _add_main_address(environ: Mapping[str, str], detected: DetectedRank | None) -> DetectedRank | None:
    """Adds the address and port of rank 0, which mpirun does not set.

    The address is this node if all ranks run on it, otherwise the first host of the allocation.
    """
    if detected is None:
        return None
    first = next(iter(hostlist.step_hosts(environ, ("SLURM_JOB_NODELIST",))), None)
    return replace(
        detected,
        main_address=LOOPBACK if detected.local_world_size == detected.world_size else first,
        main_port=_session_port(detected.session) if detected.session else DEFAULT_PORT,
    )


def _session_port(session: str) -> int:
    return hostlist.FIRST_PORT + zlib.crc32(session.encode(errors="replace")) % hostlist.PORT_COUNT


def read_main_port(environ: Mapping[str, str]) -> int | None:
    port = read_number(environ, ("MASTER_PORT",))
    if port is not None and not 1 <= port.value <= MAX_PORT:
        raise ConfigError(f"{port}, which is not a port", origin="MASTER_PORT")
    return port.value if port else None
