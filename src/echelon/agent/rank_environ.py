"""The SLURM_*, PBS_* and MPI variables of a rank: the values that one task per rank would have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.job import Job
from echelon.launchers import Scope, launcher_scope
from echelon.placement import RankPlace
from echelon.system import hostlist
from echelon.system.hostlist import compress, format_tasks_per_node, local_task_count, parse_tasks_per_node

if TYPE_CHECKING:
    from echelon.wire.messages import Start


def place_ranks(job: Job, start: Start, environ: Mapping[str, str], folder: Path) -> list[RankPlace]:
    """Sorted by local rank. In a PBS job, writes the node file of this generation into `folder`. Raises OSError."""
    path = str(folder / "nodefile") if is_pbs_job(environ) else ""
    hosts, user_variables = compress(start.hosts), (*job.env, *job.secret_env)
    places = [
        RankPlace(
            placement=start.placement,
            local_rank=local_rank,
            hosts=hosts,
            user_variables=user_variables,
            nodefile=path,
            has_mpi_variables=launcher_scope(job) is Scope.JOB,
        )
        for local_rank in range(start.placement.procs_per_node)
    ]
    if path:
        Path(path).write_text(nodefile(places[0]))
    return places


Changes = dict[str, "str | None"]
"""Variables to set; None removes one."""
IN_SLURM = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS")
IN_PBS = ("PBS_JOBID", "PBS_NODENUM")
SLURM_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")
SLURM_CPUS = ("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK")
SLURM_TRES = "SLURM_TRES_PER_TASK"
TRES_CPUS = re.compile(r"\b(cpu[=:])([0-9]+)\b")
TASK_PID = "SLURM_TASK_PID"
MPI_COUNTS = {
    "rank": ("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID"),
    "world_size": (
        "OMPI_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_SIZE",
        "PMI_SIZE",
        "PALS_SIZE",
        "OMPI_UNIVERSE_SIZE",
        "PMI_UNIVERSE_SIZE",
    ),
    "local_rank": (
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_NODE_RANK",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "PMI_LOCAL_RANK",
        "PALS_LOCAL_RANKID",
    ),
    "local_size": (
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        "MPI_LOCALNRANKS",
        "PMI_LOCAL_SIZE",
        "PALS_LOCAL_SIZE",
    ),
    "node_rank": ("PALS_NODEID",),
}
"""OMPI_COMM_WORLD_NODE_RANK counts the processes of a node, not the nodes."""
MPI_HANDLES = (
    "PMIX_",
    "PMI_",
    "PMI2_",
    "HYDRA_",
    "HYDI_",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix",
    "OMPI_MCA_initial_wdir",
    "OMPI_FILE_LOCATION",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_NUM_APP_CTX",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS",
)
"""Prefixes of variables that lead to the daemon of an outer mpirun. With them, MPI_Init would connect to it."""
MPI_SETTINGS = "PMIX_MCA_"


def rank_changes(place: RankPlace, environ: Mapping[str, str]) -> Changes:
    """The changes to `environ`, which the rank inherits. Variables that the user has set do not change."""
    changes = {
        **_slurm_changes(place, environ),
        **_pbs_changes(place, environ),
        **({} if place.has_mpi_variables else _mpi_changes(place, environ)),
    }
    return {name: value for name, value in changes.items() if name not in place.user_variables}


def apply_changes(changes: Mapping[str, str | None], environ: MutableMapping[str, str]) -> None:
    """Call in the process of the rank: SLURM_TASK_PID becomes its pid."""
    for name, value in changes.items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    if TASK_PID in environ:
        environ[TASK_PID] = str(os.getpid())


def is_pbs_job(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in IN_PBS)


def nodefile(place: RankPlace) -> str:
    """The content of PBS_NODEFILE for this generation: one line per rank."""
    return "".join(f"{host}\n" * place.placement.procs_per_node for host in _expand_hosts(place.hosts))


# Slurm


def _slurm_changes(place: RankPlace, environ: Mapping[str, str]) -> Changes:
    if not any(environ.get(name) for name in IN_SLURM):
        return {}
    placement = place.placement
    per_node, nodes, size = placement.procs_per_node, str(placement.nodes), str(placement.world_size)
    counts = format_tasks_per_node([per_node] * placement.nodes)
    first = placement.rank(0)
    return {
        "SLURM_PROCID": str(place.rank),
        "SLURM_LOCALID": str(place.local_rank),
        "SLURM_NODEID": str(placement.node_rank),
        "SLURM_GTIDS": ",".join(map(str, range(first, first + per_node))),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), size),
        "SLURM_NTASKS_PER_NODE": str(per_node),
        **dict.fromkeys(("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"), counts),
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), nodes),
        **_slurm_cpus(per_node, environ),
        **_slurm_nodes(environ, _expand_hosts(place.hosts)),
    }


def _slurm_cpus(procs_per_node: int, environ: Mapping[str, str]) -> Changes:
    """The CPUs of the step's tasks on this node, divided among the ranks.

    Since Slurm 24.11 the number is in SLURM_TRES_PER_TASK too, and srun refuses to start if the two differ.
    """

    def share(cpus: str) -> str:
        return str(max(1, int(cpus) * local_task_count(environ) // procs_per_node))

    counts: Changes = {name: share(environ[name]) for name in SLURM_CPUS if environ.get(name, "").isdecimal()}
    if SLURM_TRES in environ:
        counts[SLURM_TRES] = TRES_CPUS.sub(lambda found: found[1] + share(found[2]), environ[SLURM_TRES])
    return counts


def _slurm_nodes(environ: Mapping[str, str], hosts: Sequence[str]) -> Changes:
    """The nodes of this generation; empty if they are not hosts of the job, as in a rehearsal inside a job."""
    text = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
    listed = _expand_hosts(text)
    if not hosts or not set(hosts) <= set(listed):
        return {}
    if list(hosts) == listed:
        return dict.fromkeys(SLURM_LISTS, text)
    lists: Changes = dict.fromkeys(SLURM_LISTS, hostlist.compress(hosts))
    return {**lists, **_slurm_job_cpus(environ, listed, hosts)}


def _slurm_job_cpus(environ: Mapping[str, str], listed: Sequence[str], hosts: Sequence[str]) -> Changes:
    name = "SLURM_JOB_CPUS_PER_NODE"
    try:
        cpus = dict(zip(listed, parse_tasks_per_node(environ.get(name, "")), strict=True))
    except ValueError:
        return {}
    return {name: format_tasks_per_node([cpus[host] for host in hosts])}


def _expand_hosts(text: str) -> list[str]:
    try:
        return hostlist.expand(text)
    except ValueError:
        return []


# PBS and MPI


def _pbs_changes(place: RankPlace, environ: Mapping[str, str]) -> Changes:
    """Torque's variables change only if they are already set."""
    if not is_pbs_job(environ):
        return {}
    placement = place.placement
    if_set = {
        "PBS_VNODENUM": str(place.rank),
        "PBS_NP": str(placement.world_size),
        "PBS_NUM_PPN": str(placement.procs_per_node),
        "PBS_NUM_NODES": str(placement.nodes),
    }
    return {
        "PBS_NODENUM": str(placement.node_rank),
        "PBS_TASKNUM": str(place.rank + 1),
        **{name: value for name, value in if_set.items() if name in environ},
        **({"PBS_NODEFILE": place.nodefile} if place.nodefile else {}),
    }


def _mpi_changes(place: RankPlace, environ: Mapping[str, str]) -> Changes:
    """Corrects the counts that an outer mpirun has set, and removes the variables that lead to its daemons."""
    placement = place.placement
    values = {
        "rank": place.rank,
        "world_size": placement.world_size,
        "local_rank": place.local_rank,
        "local_size": placement.procs_per_node,
        "node_rank": placement.node_rank,
    }
    counts = {name: str(values[what]) for what, names in MPI_COUNTS.items() for name in names if name in environ}
    if not counts:
        return {}
    handles = (name for name in environ if name.startswith(MPI_HANDLES) and not name.startswith(MPI_SETTINGS))
    return {**dict.fromkeys(handles), **counts}
