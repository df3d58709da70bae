"""The control half of `--on slurm`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from echelon.backends import DerivedValue, Resolution, Settings, batch_tools
from echelon.backends.batch import SLURM
from echelon.backends.batch_tools import NO_CONFIGURATION
from echelon.backends.slurm import Slurm
from echelon.backends.slurm.query import (
    JOB_ID,
    UNKNOWN_JOB,
    element_id,
    number_and_cluster,
    parse_job_id,
    parse_sacct,
    parse_scontrol,
    parse_squeue,
    sacct_argv,
    scontrol_argv,
    squeue_argv,
    tool_argv,
    with_exit_code,
)
from echelon.backends.slurm.script import RESERVED_OPTIONS, render
from echelon.backends.slurm.states import REFUSAL_HINTS
from echelon.errors import ConfigError, SchedulerError, SchedulerUnreachable
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.states import JobState, JobStatus

__all__ = ("cancel", "check_request", "element_id", "query", "render", "resolve", "submission_summary", "submit")
ALREADY_DONE = 229
"""Exit code of scancel if a job is already done. scancel also returns it after it has signalled one element of an array
with several pending elements."""
TOOLS = batch_tools.Tools(label=Slurm.label, facts=SLURM, hints=REFUSAL_HINTS)
DEFAULTS = {
    "SBATCH_PARTITION": "partition",
    "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_CONSTRAINT": "constraint",
}
"""Variables with users' defaults for sbatch. They become settings here, so the script shows them."""


def resolve(settings: Settings, environ: Mapping[str, str]) -> Resolution:
    """The GPUs are those requested: the GPUs of the nodes are unknown on the control side."""
    _check_native(settings)
    found = {
        key: DerivedValue(value=environ[name], origin=f"{name}={environ[name]}")
        for name, key in DEFAULTS.items()
        if environ.get(name)
    }
    gpus = 0 if settings.get("cpu") else settings.get("gpus_per_node") or 0
    return Resolution(gpus_per_node=gpus, values=found)


def _check_native(settings: Settings) -> None:
    native: Mapping[str, str] = settings.get("slurm") or {}
    for name in native:
        if name in RESERVED_OPTIONS:
            raise ConfigError(
                f"sbatch's --{name} is set by echelon itself",
                origin=settings.origin("slurm"),
                hint=RESERVED_OPTIONS[name] or "echelon render shows the options of sbatch",
            )
    if re.match(r"(.*,)?gpu\b", native.get("gres", "")):
        raise ConfigError(
            f"sbatch's --gres={native['gres']} requests GPUs",
            origin=settings.origin("slurm"),
            why="echelon needs their number, to start one rank per GPU",
            hint="--gpus-per-node N, with --gpu-type and --gres if the site requires it",
        )


def submission_summary(job: Job, native_id: str) -> str:
    number, cluster = number_and_cluster(native_id)
    if job.booking.array is not None:
        number = f"{number.partition('_')[0]}_[{job.booking.array}]"
    parts = (
        f"Slurm job {number}",
        cluster and f"of {cluster}",
        job.booking.partition and f"in {job.booking.partition}",
    )
    return " ".join(filter(None, parts))


def submit(run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:  # noqa: ARG001
    argv = ("sbatch", "--parsable", str(run_dir.job_script))
    try:
        return TOOLS.submit(argv, SLURM.environ_outside_job(environ), parse_job_id)
    except SchedulerError as error:
        explained = _explain_missing_configuration(error)
        if explained is error:
            raise
        raise explained from error


def _explain_missing_configuration(error: SchedulerError) -> SchedulerError:
    """The same error, unless Slurm's tools have no configuration."""
    if NO_CONFIGURATION not in (error.why or ""):
        return error
    what = "sbatch is installed, but no Slurm answers"
    hint = "--on local; on a cluster, set SLURM_CONF=FILE"
    return SchedulerError(what, origin=error.origin, why=error.why, hint=hint)


def check_request(job: Job, script: str, environ: Mapping[str, str]) -> str:  # noqa: ARG001  the script has it all
    """Runs sbatch --test-only, which checks partition, account, limits and nodes. Raises SchedulerError."""
    import tempfile  # here, because render must stay fast

    with tempfile.NamedTemporaryFile("w", prefix="echelon-", suffix=".sh", errors="surrogateescape") as file:
        file.write(script)
        file.flush()
        answer = TOOLS.run(("sbatch", "--test-only", file.name), SLURM.environ_outside_job(environ))
    if answer.code != 0:
        raise _explain_missing_configuration(TOOLS.refusal_error("Slurm would refuse the job", answer))
    return answer.message


def query(run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
    return batch_tools.query_runs(run_dirs, query_jobs)


def cancel(run_dir: RunDir, *, force: bool = False) -> bool:
    [now] = query([run_dir])
    if now is None or now.state.ended:
        return False
    number, cluster = number_and_cluster(run_dir.read_native_id())
    gently = now.state is JobState.RUNNING and not force and _is_supervised(run_dir)
    words = ("--batch", "--signal=TERM") if gently else ()
    try:
        answer = TOOLS.run(tool_argv("scancel", cluster, *words, number), query_environ(os.environ))
    except batch_tools.ToolTimeout as error:
        error.undecided = True
        raise
    if answer.code not in (0, ALREADY_DONE):
        raise TOOLS.refusal_error("Slurm did not cancel the job", answer)
    return True


def _is_supervised(run_dir: RunDir) -> bool:
    """Whether the supervisor is alive. Then TERM goes only to the supervisor, which gives the ranks their grace period.
    After a TERM to all processes, srun kills the ranks."""
    from echelon.lease import is_held  # here, because render must stay fast

    return is_held(run_dir.lease)


def query_jobs(job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """The statuses of jobs: from the queue first, then from accounting for jobs that have left the queue."""
    by_cluster: dict[str | None, dict[str, str]] = {}
    for job_id in filter(JOB_ID.fullmatch, job_ids):
        number, cluster = number_and_cluster(job_id)
        by_cluster.setdefault(cluster, {})[number] = job_id
    found: dict[str, JobStatus] = {}
    for cluster, ids in by_cluster.items():
        known = _queue_statuses(list(ids), cluster)
        known.update(_ended_statuses({number: known.get(number) for number in ids}, cluster))
        found.update({ids[number]: status for number, status in known.items() if number in ids})
    return found


def _queue_statuses(numbers: Sequence[str], cluster: str | None) -> dict[str, JobStatus]:
    answer = TOOLS.run(squeue_argv(numbers, cluster, os.geteuid()), query_environ(os.environ))
    if answer.code != 0 and UNKNOWN_JOB not in answer.message:
        raise TOOLS.refusal_error("squeue did not report the state of the job", answer)
    return parse_squeue(answer.out)


def _ended_statuses(known: Mapping[str, JobStatus | None], cluster: str | None) -> dict[str, JobStatus]:
    """The statuses of jobs that have ended: from accounting, or from the controller, which keeps them a few minutes."""
    over = {number: status for number, status in known.items() if status is None or status.state.ended}
    try:
        recorded = _accounting_statuses(list(over), cluster) if over else {}
    except SchedulerUnreachable:
        if None in over.values():
            raise  # accounting may have the job: without an answer it is not known to be gone
        recorded = {}
    for number, status in over.items():
        if status is not None:
            details = recorded.get(number) or parse_scontrol(_scontrol_output(number, cluster))
            recorded[number] = with_exit_code(status, details.exit_code if details else None)
    return recorded


_clusters_without_accounting: set[str | None] = set()
"""Clusters without accounting. Each is queried only once."""


def _accounting_statuses(numbers: Sequence[str], cluster: str | None) -> dict[str, JobStatus]:
    """Accounting records of ended jobs. A record of a running job that is not in the queue is wrong and is dropped."""
    if cluster in _clusters_without_accounting:
        return {}
    answer = TOOLS.run(sacct_argv(numbers, cluster), query_environ(os.environ))
    if answer.code != 0:
        _clusters_without_accounting.add(cluster)
        return {}
    return {number: status for number, status in parse_sacct(answer.out).items() if status.state.ended}


def _scontrol_output(number: str, cluster: str | None) -> str:
    return TOOLS.run(scontrol_argv(number, cluster), query_environ(os.environ)).out


def query_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for queries, without those that select another output format, other jobs or another cluster."""
    removed_prefixes = (*SLURM.prefixes, "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_")
    kept = SLURM.kept_variables - {"SLURM_CLUSTERS"}
    plain = {name: value for name, value in environ.items() if name in kept or not name.startswith(removed_prefixes)}
    return {**plain, "LC_ALL": "C"}
