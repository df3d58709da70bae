"""`--on allocation`: in the Slurm or PBS job that this is run in, without submitting anything."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon import hostlist
from echelon.errors import ConfigError, EnvironmentProblem, SchedulerError
from echelon.job import Job
from echelon.machine import count_gpus
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.schedulers import Fit, Found, Wishes, detached
from echelon.schedulers.detached import pause
from echelon.schedulers.script import plain_script
from echelon.states import JobState, JobStatus

__all__ = ("STARTS_HERE", "cancel", "fit", "pause", "query", "render", "submit", "summary")

STARTS_HERE = True


def fit(wishes: Wishes, environ: Mapping[str, str]) -> Fit:
    """Every node and every GPU of the allocation, unless fewer are asked for."""
    total, origin = nodes_of(environ)
    spare = wishes.get("spare_nodes")
    nodes = wishes.asked("nodes") or max(1, total - spare)
    if nodes + spare > total:
        raise EnvironmentProblem(
            f"{nodes + spare} nodes asked for, but this allocation has {total}",
            origin=wishes.origin("nodes") if wishes.asked("nodes") else wishes.origin("spare_nodes"),
            why=origin,
            hint=f"-N {max(1, total - spare)}, or echelon submit ... for a job of its own",
        )
    found = {"nodes": Found(value=nodes, origin=origin)}
    if wishes.get("cpu"):
        return Fit(found=found)
    asked, (present, seen) = wishes.get("gpus_per_node"), gpus_of(environ)
    if asked and present and asked > present:
        raise EnvironmentProblem(
            f"{asked} GPUs on each node asked for, but this allocation has {present}",
            origin=wishes.origin("gpus_per_node"),
            why=seen,
            hint=f"-g {present}, or --procs-per-node {asked} for ranks that share GPUs",
        )
    if present:
        found["gpus_per_node"] = Found(value=present, origin=seen)
    return Fit(gpus_per_node=asked or present, found=found)


def nodes_of(environ: Mapping[str, str]) -> tuple[int, str]:
    """How many nodes the allocation has, and where that is said."""
    if _is_pbs(environ):
        return nodes_of_pbs(environ)
    listed = environ.get("SLURM_JOB_NODELIST", "")
    origin = f"SLURM_JOB_NODELIST={listed}"
    try:
        count = len(hostlist.expand(listed))
    except ValueError as error:
        raise ConfigError("the allocation's list of nodes cannot be read", origin=origin, why=str(error)) from error
    if not count or not environ.get("SLURM_JOB_ID"):
        raise EnvironmentProblem(
            "this is not inside of an allocation",
            why="neither SLURM_JOB_ID and SLURM_JOB_NODELIST nor PBS_JOBID and PBS_NODEFILE are set",
            hint="salloc -N 2 or qsub -I makes one; echelon run --on slurm or pbs submits a job instead",
        )  # fmt: skip
    return count, origin


def _is_pbs(environ: Mapping[str, str]) -> bool:
    return not environ.get("SLURM_JOB_ID") and bool(environ.get("PBS_JOBID")) and bool(environ.get("PBS_NODEFILE"))


def nodes_of_pbs(environ: Mapping[str, str]) -> tuple[int, str]:
    """The file has a line for each MPI process; hosts are counted once."""
    origin = f"PBS_NODEFILE={environ['PBS_NODEFILE']}"
    try:
        names = Path(environ["PBS_NODEFILE"]).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            "the allocation's list of hosts cannot be read", origin=origin, why=str(error)
        ) from error
    return len(set(names)), origin


def gpus_of(environ: Mapping[str, str]) -> tuple[int, str]:
    """GPUs on each node of the allocation: the first variable that tells, as `4` or `a100:4`. PBS sets none."""
    if _is_pbs(environ):
        return count_gpus(environ), "this node has them"
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        count = environ.get(name, "").rpartition(":")[2]
        if count.isdecimal():
            return int(count), f"{name}={environ[name]}"
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if environ.get(name):
            return len(environ[name].split(",")), f"{name}={environ[name]}"
    return 0, ""


def summary(job: Job, native_id: str) -> str:  # noqa: ARG001  every scheduler is asked the same way
    number = native_id.split()[3]
    return f"in {'PBS' if '.' in number else 'Slurm'} job {number}"


def render(job: Job, run_dir: RunDir) -> str:
    remark = f"{job.resources.nodes} nodes of the allocation, {job.resources.procs_per_node} ranks on each"
    return plain_script(job, run_dir, remark)


def submit(run_dir: RunDir, environ: Mapping[str, str]) -> str:
    """A process here, with the allocation's variables; its id says on which host and in which Slurm job it is."""
    return f"{detached.submit(run_dir, environ)} {socket.gethostname()} {_outer_job(environ)}"


def _outer_job(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID") or "-"


def query(run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
    """From another host the allocation speaks for the process in it."""
    elsewhere = {run.path: _word(run, 3) for run in run_dirs if not _is_here(run)}
    known = _ask_about([job_id for job_id in elsewhere.values() if job_id])
    return [
        _of_allocation(known.get(elsewhere[run.path])) if run.path in elsewhere else detached.query([run])[0]
        for run in run_dirs
    ]


def _ask_about(job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """PBS names its server in an id, Slurm does not."""
    known: dict[str, JobStatus] = {}
    ours = {"pbs": [name for name in job_ids if "." in name], "slurm": [name for name in job_ids if "." not in name]}
    for scheduler, names in ours.items():
        if names:
            known |= member("scheduler", scheduler).ask_about(names)
    return known


def _of_allocation(status: JobStatus | None) -> JobStatus | None:
    if status is None or status.state.ended:
        return None
    return JobStatus(state=JobState.RUNNING, native=f"allocation {status.native}")


def cancel(run_dir: RunDir, *, again: bool = False) -> bool:
    if not _is_here(run_dir):
        raise SchedulerError(
            f"{run_dir.run_id} cannot be cancelled from {socket.gethostname()}",
            origin=str(run_dir.native_id),
            why=f"it is a process on {_word(run_dir, 2)}, inside of somebody's allocation",
            hint=f"ssh {_word(run_dir, 2)} echelon cancel {run_dir.run_id}",
        )
    return detached.cancel(run_dir, again=again)


def _is_here(run_dir: RunDir) -> bool:
    return _word(run_dir, 2) in ("", socket.gethostname())


def _word(run_dir: RunDir, index: int) -> str:
    words = run_dir.read_native_id().split()
    return words[index] if index < len(words) else ""
