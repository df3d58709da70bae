"""`--on slurm`: a batch job of a Slurm cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from echelon.batch_facts import SLURM
from echelon.errors import ConfigError, SchedulerUnreachable
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.schedulers import Fit, Found, Wishes, batch
from echelon.schedulers.batch import pause
from echelon.schedulers.slurm_queue import (
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
from echelon.schedulers.slurm_script import ARRAY_INDEX, OURS, render
from echelon.schedulers.slurm_words import REMEDIES
from echelon.states import JobState, JobStatus

__all__ = ("ARRAY_INDEX", "STARTS_HERE", "cancel", "element_id", "fit", "pause", "query", "render", "submit", "summary")

STARTS_HERE = False

TOOLS = batch.Tools(label="Slurm", facts=SLURM, remedies=REMEDIES)

DEFAULTS = {
    "SBATCH_PARTITION": "partition", "SBATCH_ACCOUNT": "account", "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation", "SBATCH_CONSTRAINT": "constraint",
}  # fmt: skip
"""Variables by which users tell sbatch their defaults; here they are settings, so that the script shows them."""


def fit(wishes: Wishes, environ: Mapping[str, str]) -> Fit:
    """GPUs as asked for: what the nodes have is not known here."""
    _check_native(wishes)
    found = {
        key: Found(value=environ[name], origin=f"{name}={environ[name]}")
        for name, key in DEFAULTS.items()
        if environ.get(name)
    }
    gpus = 0 if wishes.get("cpu") else wishes.get("gpus_per_node") or 0
    return Fit(gpus_per_node=gpus, found=found)


def _check_native(wishes: Wishes) -> None:
    native: Mapping[str, str] = wishes.get("slurm") or {}
    for name in native:
        if name in OURS:
            raise ConfigError(
                f"sbatch's --{name} is set by echelon itself",
                origin=wishes.origin("slurm"),
                hint=OURS[name] or "echelon render shows what sbatch is given",
            )
    if re.match(r"(.*,)?gpu\b", native.get("gres", "")):
        raise ConfigError(
            f"GPUs are asked for by sbatch's --gres={native['gres']}",
            origin=wishes.origin("slurm"),
            why="echelon must know of them, to start a rank for each",
            hint="--gpus-per-node N, with --gpu-type and --gres where the site wants that",
        )


def summary(job: Job, native_id: str) -> str:
    number, cluster = number_and_cluster(native_id)
    if job.booking.array is not None:
        number = f"{number.partition('_')[0]}_[{job.booking.array}]"
    parts = (
        f"Slurm job {number}",
        cluster and f"of {cluster}",
        job.booking.partition and f"in {job.booking.partition}",
    )
    return " ".join(filter(None, parts))


def submit(run_dir: RunDir, environ: Mapping[str, str]) -> str:
    argv = ("sbatch", "--parsable", str(run_dir.job_script))
    return TOOLS.submit(argv, SLURM.outside(environ), parse_job_id)


def query(run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
    return batch.query(run_dirs, ask_about)


def cancel(run_dir: RunDir, *, again: bool = False) -> bool:
    [now] = query([run_dir])
    if now is None or now.state.ended:
        return False
    number, cluster = number_and_cluster(run_dir.read_native_id())
    gently = now.state is JobState.RUNNING and not again and _is_supervised(run_dir)
    words = ("--batch", "--signal=TERM") if gently else ()
    answer = TOOLS.ask(tool_argv("scancel", cluster, *words, number), reading_environ(os.environ))
    if answer.code != 0:
        raise TOOLS.refusal("Slurm did not cancel the job", answer)
    return True


def _is_supervised(run_dir: RunDir) -> bool:
    """A supervisor that lives is told alone, and gives the ranks their grace; of a TERM to all, srun kills them."""
    from echelon.node.lease import is_held  # not for render: it must stay quick

    return is_held(run_dir.lease)


def ask_about(job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """What Slurm knows of these jobs: its queue first, its books for those that have left it."""
    by_cluster: dict[str | None, dict[str, str]] = {}
    for job_id in filter(JOB_ID.fullmatch, job_ids):
        number, cluster = number_and_cluster(job_id)
        by_cluster.setdefault(cluster, {})[number] = job_id
    found: dict[str, JobStatus] = {}
    for cluster, ids in by_cluster.items():
        known = _queue(list(ids), cluster)
        known.update(_ends({number: known.get(number) for number in ids}, cluster))
        found.update({ids[number]: status for number, status in known.items() if number in ids})
    return found


def _queue(numbers: Sequence[str], cluster: str | None) -> dict[str, JobStatus]:
    answer = TOOLS.ask(squeue_argv(numbers, cluster, os.geteuid()), reading_environ(os.environ))
    if answer.code != 0 and UNKNOWN_JOB not in answer.words:
        raise TOOLS.refusal("squeue did not say how the job is", answer)
    return parse_squeue(answer.out)


def _ends(known: Mapping[str, JobStatus | None], cluster: str | None) -> dict[str, JobStatus]:
    """How those ended that are no longer in the queue: the books know, and for a few minutes the controller does."""
    over = {number: status for number, status in known.items() if status is None or status.state.ended}
    try:
        told = _books(list(over), cluster) if over else {}
    except SchedulerUnreachable:
        if None in over.values():
            raise  # the books may know it: that nobody could look is no proof that it is gone
        told = {}
    for number, status in over.items():
        if status is not None:
            details = told.get(number) or parse_scontrol(_shown(number, cluster))
            told[number] = with_exit_code(status, details.exit_code if details else None)
    return told


_no_books: set[str | None] = set()
"""The clusters that keep no accounts, so that each is asked once."""


def _books(numbers: Sequence[str], cluster: str | None) -> dict[str, JobStatus]:
    """Only of jobs that have ended: of one that is not in the queue, accounts that say it runs are wrong."""
    if cluster in _no_books:
        return {}
    answer = TOOLS.ask(sacct_argv(numbers, cluster), reading_environ(os.environ))
    if answer.code != 0:
        _no_books.add(cluster)
        return {}
    return {number: status for number, status in parse_sacct(answer.out).items() if status.state.ended}


def _shown(number: str, cluster: str | None) -> str:
    return TOOLS.ask(scontrol_argv(number, cluster), reading_environ(os.environ)).out


def reading_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """For questions: nothing in it may choose another format, other jobs or another cluster than we mean."""
    told_apart = (*SLURM.prefixes, "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_")
    kept = SLURM.kept - {"SLURM_CLUSTERS"}
    plain = {name: value for name, value in environ.items() if name in kept or not name.startswith(told_apart)}
    return {**plain, "LC_ALL": "C"}
