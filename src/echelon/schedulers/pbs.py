"""`--on pbs`: a batch job of OpenPBS or PBS Pro, also where a site such as NCI's Gadi has a dialect of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from echelon.batch_facts import PBS
from echelon.errors import ConfigError, SchedulerError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.schedulers import Fit, Wishes, batch
from echelon.schedulers.batch import Answer, pause
from echelon.schedulers.pbs_nodes import check_native, found_for
from echelon.schedulers.pbs_queue import (
    FINISHED,
    FORMS,
    HINTS,
    JOB_ID,
    UNKNOWN_JOB,
    parse_job_id,
    parse_statuses,
    qstat_argv,
)
from echelon.schedulers.pbs_script import render
from echelon.sealed import KEY_VARIABLE, seal
from echelon.states import JobState, JobStatus

__all__ = ("STARTS_HERE", "cancel", "fit", "pause", "query", "render", "submit", "summary")

STARTS_HERE = False


class PbsTools(batch.Tools):
    def refusal(self, what: str, answer: Answer) -> SchedulerError:
        error = super().refusal(what, answer)
        error.hint = HINTS.get(answer.code) or error.hint
        return error


TOOLS = PbsTools(label="PBS", facts=PBS)


def fit(wishes: Wishes, environ: Mapping[str, str]) -> Fit:  # noqa: ARG001  every scheduler is asked the same way
    """GPUs as asked for: what the nodes have is known here only where a profile of the site tells."""
    check_native(wishes)
    if wishes.get("mem") == "0":
        raise ConfigError(
            "PBS has no word for all the memory of a node", origin=wishes.origin("mem"),
            hint="--mem SIZE, or leave it out; --pbs place=scatter:excl takes whole nodes",
        )  # fmt: skip
    gpus = 0 if wishes.get("cpu") else wishes.get("gpus_per_node") or 0
    return Fit(gpus_per_node=gpus, found=found_for(wishes, gpus))


def summary(job: Job, native_id: str) -> str:
    return f"PBS job {native_id}" + (f" in {job.booking.partition}" if job.booking.partition else "")


def submit(run_dir: RunDir, environ: Mapping[str, str]) -> str:
    """PBS would show the environment to anyone who asks it, and mangle a line break: it gets only the key to ours."""
    outside = PBS.outside(environ)
    data, key = seal(outside)
    run_dir.write(run_dir.sealed, data)
    argv = ("qsub", "-v", KEY_VARIABLE, str(run_dir.job_script))
    return TOOLS.submit(argv, {**outside, KEY_VARIABLE: key}, parse_job_id)


def query(run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
    return batch.query(run_dirs, ask_about)


def ask_about(job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """A job that is unknown, or over and forgotten, is left out: what its run wrote down has to do."""
    ids = list(filter(JOB_ID.fullmatch, job_ids))
    if not ids:
        return {}
    for form in FORMS:
        answer = TOOLS.ask(qstat_argv(form, ids), PBS.outside(os.environ))
        try:
            known = parse_statuses(answer.out, ids)
        except ValueError:
            continue  # some versions print JSON that is none: the text says the same
        if known or answer.code in (0, FINISHED, UNKNOWN_JOB):
            return known
    raise TOOLS.refusal("qstat did not say how the job is", answer)


def cancel(run_dir: RunDir, *, again: bool = False) -> bool:  # noqa: ARG001  PBS kills what outlives TERM
    [now] = query([run_dir])
    if now is None or now.state.ended:
        return False
    answer = TOOLS.ask(["qdel", run_dir.read_native_id()], PBS.outside(os.environ))
    if answer.code in (FINISHED, UNKNOWN_JOB):
        return False
    if answer.code != 0:
        raise TOOLS.refusal("PBS did not delete the job", answer)
    if now.state is JobState.QUEUED:  # otherwise the supervisor sees to it
        run_dir.sealed.unlink(missing_ok=True)
    return True
