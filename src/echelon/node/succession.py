"""Which job of PBS is a run's own: of a job and its successor, and of two successors, one goes on."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from echelon import qstat
from echelon.errors import EchelonError
from echelon.events import read_events
from echelon.node.history import has_finished
from echelon.run_dir import RunDir


def take_over(run_dir: RunDir, environ: Mapping[str, str]) -> str | None:
    """Makes the job around us the run's own, or says why it must not be. Only who holds the lease may ask."""
    job_id, named = environ.get("PBS_JOBID", ""), run_dir.read_native_id()
    try:
        if run_dir.read_job().scheduler != "pbs":
            return None
        refusal = refusal_of(job_id, named, finished=has_finished(read_events(run_dir.events)))
        if refusal is None and job_id and is_followed(job_id, named):  # who submitted us died before writing it down
            run_dir.write(run_dir.native_id, f"{job_id}\n".encode())
    except EchelonError as error:
        print(error, file=sys.stderr, flush=True)  # the attempt will meet it, too
        return None
    return refusal


def refusal_of(job_id: str, named: str, *, finished: bool) -> str | None:
    """Why a job that has just started must leave the run alone; `named` is the one that the run has written down."""
    if finished:
        return f"the run has come to its end, and job {job_id} was started after it"
    ours, theirs = sequence(job_id), sequence(named)
    if ours is not None and theirs is not None and theirs > ours:
        return f"job {job_id} was followed by {named}, which goes on with this run"
    return None


def is_followed(job_id: str, named: str) -> bool:
    """Whether the run names another job than this one; while it names none, it is just being submitted."""
    return bool(named) and qstat.number(named) != qstat.number(job_id)


def sequence(job_id: str) -> int | None:
    """PBS counts its jobs up; None for what is no job of PBS."""
    digits = qstat.number(job_id).partition("[")[0]
    return int(digits) if digits.isdecimal() else None
