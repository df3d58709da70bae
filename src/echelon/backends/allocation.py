"""`--on allocation`: uses the nodes of the surrounding Slurm or PBS job and submits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.backends import Backend, DerivedValue, Resolution, Settings
from echelon.backends.process import ProcessBackend, process_script, process_status, start_job, terminate_job
from echelon.errors import ConfigError, EnvironmentProblem, SchedulerError
from echelon.states import JobState, JobStatus

if TYPE_CHECKING:
    from echelon.backends.hosts import Hosts
    from echelon.job import Job
    from echelon.run_dir import RunDir


class Allocation(ProcessBackend):
    name = "allocation"
    label = "this allocation"
    detects_gpus = True
    supported_settings = frozenset({"cpus", "interface"})
    may_use_srun = True

    def uses_srun(self, environ: Mapping[str, str]) -> bool:
        return bool(environ.get("SLURM_JOB_ID"))

    def detect(self, environ: Mapping[str, str], *, use_allocation: bool) -> str | None:
        if use_allocation and environ.get("SLURM_JOB_ID") and environ.get("SLURM_JOB_NODELIST"):
            return f"inside Slurm job {environ['SLURM_JOB_ID']}"
        if use_allocation and environ.get("PBS_JOBID") and environ.get("PBS_NODEFILE"):
            return f"inside PBS job {environ['PBS_JOBID']}"
        return None

    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        """All nodes and GPUs of the allocation, unless fewer are requested."""
        total, origin = count_nodes(environ)
        spare = settings.get("spare_nodes")
        nodes = settings.asked("nodes") or max(1, total - spare)
        if nodes + spare > total:
            raise EnvironmentProblem(
                f"{nodes + spare} nodes requested, but this allocation has {total}",
                origin=settings.origin("nodes") if settings.asked("nodes") else settings.origin("spare_nodes"),
                why=origin,
                hint=f"-N {max(1, total - spare)}, or echelon submit to submit a new job",
            )
        found = {"nodes": DerivedValue(value=nodes, origin=origin)}
        if settings.get("cpu"):
            return Resolution(values=found)
        asked, (present, seen) = settings.get("gpus_per_node"), count_allocated_gpus(environ)
        if asked and present and asked > present:
            raise EnvironmentProblem(
                f"{asked} GPUs per node requested, but this allocation has {present}",
                origin=settings.origin("gpus_per_node"),
                why=seen,
                hint=f"-g {present}, or --procs-per-node {asked} if ranks share GPUs",
            )
        if present:
            found["gpus_per_node"] = DerivedValue(value=present, origin=seen)
        return Resolution(gpus_per_node=asked or present, values=found)

    def submission_summary(self, job: Job, native_id: str) -> str:  # noqa: ARG002
        number = native_id.split()[3]
        return f"in {'PBS' if '.' in number else 'Slurm'} job {number}"

    def render(self, job: Job, run_dir: RunDir) -> str:
        remark = f"{job.resources.nodes} nodes of the allocation, {job.resources.procs_per_node} ranks on each"
        return process_script(job, run_dir, remark)

    def submit(self, run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:  # noqa: ARG002
        """Starts a process with the variables of the allocation. Its id includes the host and the Slurm or PBS job."""
        return f"{start_job(run_dir, environ)} {_host_name()} {_surrounding_job_id(environ)}"

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        """From another host the process is not visible, so the state of the allocation is used."""
        elsewhere = {run.path: _native_id_word(run, 3) for run in run_dirs if not _is_here(run)}
        known = _query_allocations([job_id for job_id in elsewhere.values() if job_id])
        return [
            _status_in_allocation(known.get(elsewhere[run.path])) if run.path in elsewhere else process_status(run)
            for run in run_dirs
        ]

    def cancel(self, run_dir: RunDir, *, force: bool = False) -> bool:  # noqa: ARG002
        if not _is_here(run_dir):
            raise SchedulerError(
                f"{run_dir.run_id} cannot be cancelled from {_host_name()}",
                origin=str(run_dir.native_id),
                why=f"it runs on {_native_id_word(run_dir, 2)}, inside an allocation",
                hint=f"ssh {_native_id_word(run_dir, 2)} echelon cancel {run_dir.run_id}",
            )
        return terminate_job(run_dir)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        """The allocation outlives an attempt, and the next attempt starts in it."""
        if self.uses_srun(environ):
            from echelon.backends.slurm.hosts import SlurmHosts

            return SlurmHosts(job, run_dir, environ, keeps_allocation=True)
        from echelon.backends.pbs.hosts import PbsHosts

        return PbsHosts(job, run_dir, environ, keeps_allocation=True)


BACKEND: Backend = Allocation()


def count_nodes(environ: Mapping[str, str]) -> tuple[int, str]:
    """The number of nodes of the allocation, and the variable it comes from."""
    if _is_pbs(environ):
        return count_pbs_nodes(environ)
    from echelon.system import hostlist

    listed = environ.get("SLURM_JOB_NODELIST", "")
    origin = f"SLURM_JOB_NODELIST={listed}"
    try:
        count = len(hostlist.expand(listed))
    except ValueError as error:
        raise ConfigError("cannot read the node list of this allocation", origin=origin, why=str(error)) from error
    if not count or not environ.get("SLURM_JOB_ID"):
        raise EnvironmentProblem(
            "not inside a Slurm or PBS allocation",
            why="neither SLURM_JOB_ID and SLURM_JOB_NODELIST nor PBS_JOBID and PBS_NODEFILE are set",
            hint="salloc -N 2 or qsub -I first, or echelon run --on slurm or --on pbs to submit a job",
        )
    return count, origin


def _is_pbs(environ: Mapping[str, str]) -> bool:
    return not environ.get("SLURM_JOB_ID") and bool(environ.get("PBS_JOBID")) and bool(environ.get("PBS_NODEFILE"))


def count_pbs_nodes(environ: Mapping[str, str]) -> tuple[int, str]:
    """The file has one line per MPI process. Each host is counted once."""
    origin = f"PBS_NODEFILE={environ['PBS_NODEFILE']}"
    try:
        names = Path(environ["PBS_NODEFILE"]).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            "cannot read the host list of this allocation", origin=origin, why=str(error)
        ) from error
    return len(set(names)), origin


def count_allocated_gpus(environ: Mapping[str, str]) -> tuple[int, str]:
    """GPUs per node of the allocation, and their source: the first variable with a count such as `4` or `a100:4`.
    PBS sets no such variable, so the GPUs of this node are counted."""
    if _is_pbs(environ):
        from echelon.system.machine import count_gpus

        return count_gpus(environ), "counted on this node"
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        count = environ.get(name, "").rpartition(":")[2]
        if count.isdecimal():
            return int(count), f"{name}={environ[name]}"
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if environ.get(name):
            return len(environ[name].split(",")), f"{name}={environ[name]}"
    return 0, ""


def _surrounding_job_id(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID") or "-"


def _query_allocations(job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """The statuses of the allocations. A PBS id contains a dot and the server name, a Slurm id does not."""
    from echelon.backends.pbs import control as pbs  # here, because render must stay fast
    from echelon.backends.slurm import control as slurm

    known: dict[str, JobStatus] = {}
    of_pbs = [name for name in job_ids if "." in name]
    of_slurm = [name for name in job_ids if "." not in name]
    for query_jobs, names in ((pbs.query_jobs, of_pbs), (slurm.query_jobs, of_slurm)):
        if names:
            known |= query_jobs(names)
    return known


def _status_in_allocation(status: JobStatus | None) -> JobStatus | None:
    if status is None or status.state.ended:
        return None
    return JobStatus(state=JobState.RUNNING, native=f"allocation {status.native}")


def _is_here(run_dir: RunDir) -> bool:
    return _native_id_word(run_dir, 2) in ("", _host_name())


def _host_name() -> str:
    import socket  # not needed by render

    return socket.gethostname()


def _native_id_word(run_dir: RunDir, index: int) -> str:
    words = run_dir.read_native_id().split()
    return words[index] if index < len(words) else ""
