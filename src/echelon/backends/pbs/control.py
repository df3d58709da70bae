"""The control half of `--on pbs`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from echelon.backends import Resolution, Settings, batch_tools
from echelon.backends.batch import PBS
from echelon.backends.batch_tools import ANSWER_SECONDS, Answer, ToolTimeout
from echelon.backends.pbs import Pbs
from echelon.backends.pbs.dialects import check_native, derived_values
from echelon.backends.pbs.environment import KEY_VARIABLE, encrypt_environ
from echelon.backends.pbs.query import (
    DEAD_HOST,
    FINISHED,
    HINTS,
    HISTORY,
    JOB_ID,
    LIVE,
    UNKNOWN_JOB,
    array_id,
    element_id,
    parse_job_id,
    parse_statuses,
    qstat_argv,
)
from echelon.backends.pbs.script import index_range, render
from echelon.errors import ConfigError, SchedulerError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.states import JobStatus
from echelon.system.project import link_or_copy

__all__ = ("cancel", "check_request", "element_id", "query", "render", "resolve", "submission_summary", "submit")


class PbsTools(batch_tools.Tools):
    def refusal_error(self, what: str, answer: Answer) -> SchedulerError:
        error = super().refusal_error(what, answer)
        error.undecided = "MOM" in answer.message
        error.hint = HINTS.get(answer.code) or (DEAD_HOST if error.undecided else error.hint)
        return error


TOOLS = PbsTools(label=Pbs.label, facts=PBS)


def resolve(settings: Settings, environ: Mapping[str, str]) -> Resolution:  # noqa: ARG001  the same signature for all backends
    """The GPUs are those requested: the GPUs of the nodes are known here only from a site profile."""
    check_native(settings)
    with suppress(ValueError):  # invalid indices are reported elsewhere, for all backends
        index_range(settings.get("array"), settings.origin("array"))
    if settings.get("mem") == "0":
        raise ConfigError(
            "PBS has no option for all the memory of a node",
            origin=settings.origin("mem"),
            hint="--mem SIZE, or omit it; --pbs place=scatter:excl takes whole nodes",
        )
    gpus = 0 if settings.get("cpu") else settings.get("gpus_per_node") or 0
    return Resolution(gpus_per_node=gpus, values=derived_values(settings, gpus))


def submission_summary(job: Job, native_id: str) -> str:
    kind = "job" if index_range(job.booking.array) is None else "job array"
    where = f" in {job.booking.partition}" if job.booking.partition else ""
    return f"PBS {kind} {array_id(native_id)}{where}"


def submit(run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:
    """Encrypts the environment, submits the job script and returns the job id.

    PBS shows the environment of a job to every user and corrupts line breaks, so it gets only the key. The runs of an
    array share one encrypted file. Each run has its own link to it, which is removed with the run.
    """
    outside = PBS.environ_outside_job(environ)
    data, key = encrypt_environ(outside)
    run_dir.write(run_dir.sealed, data)
    for other in other_runs:
        other.sealed.unlink(missing_ok=True)
        link_or_copy(run_dir.sealed, other.sealed)
    _write_next_scripts((run_dir, *other_runs) if other_runs else (), run_dir)
    argv = ("qsub", "-v", KEY_VARIABLE, str(run_dir.job_script))
    return TOOLS.submit(argv, {**outside, KEY_VARIABLE: key}, parse_job_id)


def _write_next_scripts(elements: Sequence[RunDir], first: RunDir) -> None:
    """Writes the script for later attempts of each element, which are ordinary jobs. job.sh would submit the whole
    array again."""
    first.next_script.unlink(missing_ok=True)
    for run_dir in elements:
        text = render(_next_attempt(run_dir.read_job()), run_dir)
        run_dir.write(run_dir.next_script, text.encode(errors="surrogateescape"), mode=0o700)


def _next_attempt(job: Job) -> Job:
    """One run of an array as an ordinary job. It has no dependency: the array has already waited."""
    return replace(job, booking=replace(job.booking, dependency=None))


def check_request(job: Job, script: str, environ: Mapping[str, str]) -> str:  # noqa: ARG001  qsub cannot test a script
    """Asks for the server and the queue. Raises SchedulerError."""
    queue = job.booking.partition
    argv = ("qstat", "-Q", queue) if queue else ("qstat", "-B")
    answer = TOOLS.run(argv, PBS.environ_outside_job(environ))
    if answer.code != 0:
        raise TOOLS.refusal_error(f"PBS has no queue {queue}" if queue else "PBS does not answer", answer)
    return answer.out.strip().splitlines()[-1] if answer.out.strip() else ""


def query(run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
    return batch_tools.query_runs(run_dirs, query_jobs)


def query_jobs(job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """The statuses of jobs. A job is unknown only if neither `qstat -f` nor `qstat -x -f` lists it.

    `qstat -f` is run first: without a job history, which is OpenPBS's default, only this form lists a job.
    """
    ids = list(filter(JOB_ID.fullmatch, job_ids))
    known: dict[str, JobStatus] = {}
    for form in (LIVE, HISTORY):
        missing = [job_id for job_id in ids if job_id not in known]
        if missing:
            known |= _run_qstat(form, missing)
    return known


def _run_qstat(form: Sequence[str], ids: Sequence[str]) -> dict[str, JobStatus]:
    answer = TOOLS.run(qstat_argv(form, ids), PBS.environ_outside_job(os.environ))
    known = parse_statuses(answer.out, ids)
    if form is LIVE and len(known) < len(ids) and answer.code not in (0, FINISHED, UNKNOWN_JOB):
        raise TOOLS.refusal_error("qstat did not report the state of the job", answer)
    return known


def cancel(run_dir: RunDir, *, force: bool = False) -> bool:
    """Runs qdel without a query first. `force` adds -W force, for a job whose first host is dead."""
    from echelon.lease import is_held  # here, because render must stay fast

    job_id = run_dir.read_native_id()
    if not job_id:
        return False
    answer = qdel(job_id, force=force)
    if answer.code in (FINISHED, UNKNOWN_JOB):
        return False
    if answer.code != 0:
        raise TOOLS.refusal_error("PBS did not delete the job", answer)
    if not is_held(run_dir.lease):  # a live supervisor removes the file itself
        run_dir.sealed.unlink(missing_ok=True)
    return True


def qdel(job_id: str, *, force: bool, seconds: float = ANSWER_SECONDS) -> Answer:
    argv = ["qdel", *(("-W", "force") if force else ()), job_id]
    try:
        return TOOLS.run(argv, PBS.environ_outside_job(os.environ), seconds)
    except ToolTimeout as error:
        error.undecided = True
        error.hint = "the job's first host may be dead; run echelon cancel again to force it"
        raise
