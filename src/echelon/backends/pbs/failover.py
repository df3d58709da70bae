"""Decides which PBS job continues a run: one that has just started, or a successor after the first host is lost."""

from __future__ import annotations

import enum
import subprocess
import time
from collections.abc import Mapping, Sequence

from echelon import lease
from echelon.attempt_dir import AttemptDir
from echelon.backends.batch import PBS
from echelon.backends.batch_hosts import RequeueClaim
from echelon.backends.hosts import Unreachable
from echelon.backends.pbs import query
from echelon.backends.pbs.hosts import run_pbs, submit_successor
from echelon.errors import REQUEUE, SchedulerError
from echelon.events import Event, Kind, append_event, count_requeues, has_finished, read_events, was_cancelled
from echelon.job import Job
from echelon.record import record
from echelon.run_dir import RunDir

PATIENCE_SECONDS = 900.0
POLL_SECONDS = 3.0
DELETE_SECONDS = 10.0
DELETE_PATIENCE_SECONDS = 900.0
END_EVENTS = (Kind.REQUEUED, Kind.FINISHED)
SUPERVISOR_EVENTS = (Kind.STARTED, Kind.GENERATION, Kind.RANK_READY, Kind.FINISHED)
"""Events that only a working supervisor writes."""


class NextStep(enum.Enum):
    WAIT = enum.auto()
    SUBMIT = enum.auto()
    LEAVE = enum.auto()


@record
class RunState:
    """The state of the run, as an agent without a supervisor sees it."""

    closed: bool = False
    """The run was cancelled, or another job continues it."""
    newest: Kind | None = None
    """The last event, if it was written after the loss of the supervisor or marks the end of the attempt."""
    exit_code: int | None = None
    lease_held: bool = False
    quiet: bool = True
    """No event was written during a heartbeat timeout. A live supervisor records the lost agent within that time."""


def next_step(state: RunState) -> NextStep:
    """The next action of an agent without a supervisor. Pure."""
    if state.closed or state.newest in SUPERVISOR_EVENTS or state.exit_code not in (None, REQUEUE):
        return NextStep.LEAVE
    may_submit = state.newest is Kind.REQUEUED or (state.newest is None and state.exit_code is None)
    return NextStep.SUBMIT if may_submit and state.quiet and not state.lease_held else NextStep.WAIT


def newest_event(events: Sequence[Event], before: int) -> Kind | None:
    """The last event, if it is new or marks the end of the attempt. Pure.

    `before` is the number of events when the watch began. The agent ends its ranks before that, so the supervisor may
    already have written the end.
    """
    return events[-1].kind if len(events) > before or (events and events[-1].kind in END_EVENTS) else None


class RunWatch:
    """Polls the run directory."""

    def __init__(self, job: Job, run_dir: RunDir, attempt: AttemptDir, job_id: str) -> None:
        self._run_dir, self._attempt, self._job_id = run_dir, attempt, job_id
        self._heartbeat = job.policies.heartbeat.total_seconds()
        self._before = self._count = len(list(read_events(run_dir.events)))
        self._changed = time.monotonic()

    def read_state(self) -> RunState:
        run_dir = self._run_dir
        events = list(read_events(run_dir.events))
        if len(events) != self._count:
            self._count, self._changed = len(events), time.monotonic()
        followed = query.has_successor(self._job_id, run_dir.read_native_id())
        return RunState(
            closed=followed or run_dir.cancel_mark.exists(),
            newest=newest_event(events, self._before),
            exit_code=self._attempt.read_exit_code(),
            lease_held=lease.is_held(run_dir.lease),
            quiet=time.monotonic() - self._changed >= self._heartbeat,
        )


def continue_without_supervisor(
    job: Job, attempt: AttemptDir, environ: Mapping[str, str], patience: float = PATIENCE_SECONDS
) -> None:
    """One agent submits the successor, after the lease is free and while PBS still reports the job as running."""
    job_id, run_dir = environ.get("PBS_JOBID", ""), RunDir(attempt.path.parent)
    claim, watch = RequeueClaim(attempt), RunWatch(job, run_dir, attempt, job_id)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and (step := next_step(state := watch.read_state())) is not NextStep.LEAVE:
        try:
            if step is NextStep.SUBMIT:
                requeued = state.newest is Kind.REQUEUED
                return _hand_over(job, run_dir, claim, environ, requeued) if _is_running(job_id, environ) else None
        except Unreachable:
            pass  # this host may be cut off from the network
        except (SchedulerError, subprocess.CalledProcessError) as refusal:
            return print(f"the job lost its first host, and no successor can be submitted: {refusal}", flush=True)
        time.sleep(POLL_SECONDS)
    return None


def _is_running(job_id: str, environ: Mapping[str, str]) -> bool:
    fields = query.find_job(query.parse_jobs(run_pbs("qstat", ["-f", job_id], environ)), job_id) or {}
    return fields.get("job_state") == "R"


def _hand_over(job: Job, run_dir: RunDir, claim: RequeueClaim, environ: Mapping[str, str], requeued: bool) -> None:
    """Submits the successor and deletes this job. A requeue that the supervisor has recorded is already counted."""
    if not requeued and count_requeues(read_events(run_dir.events)) >= job.policies.requeues:
        return
    if not claim.is_ours():
        return
    submit_successor(run_dir, environ)
    if not requeued:
        reason = "lost the first host, which ran the supervisor"
        attempt = claim.attempt.number
        append_event(run_dir.events, Kind.REQUEUED, attempt, outcome="requeued", exit_code=REQUEUE, reason=reason)
    _delete_job(environ)


def _delete_job(environ: Mapping[str, str]) -> None:
    """Deletes this job by force. It still holds its hosts, and its successor waits for its end.

    Without force qdel would hang. With force PBS refuses until it has marked the dead host's node down, which takes
    about 90 s.
    """
    job_id = environ["PBS_JOBID"]
    deadline = time.monotonic() + DELETE_PATIENCE_SECONDS
    first = refusal = _force_delete(job_id, environ)
    if first is not None and not first.is_final:
        print(f"PBS does not delete job {job_id} yet: {first.why}; trying again every 10 s", flush=True)
    while refusal is not None and not refusal.is_final and time.monotonic() < deadline:
        time.sleep(DELETE_SECONDS)
        refusal = _force_delete(job_id, environ)
    if refusal is None:
        return print(f"job {job_id} was deleted by force", flush=True)
    late = f"its successor waits until PBS ends the job. To end it now: qdel -W force {job_id}"
    return print(f"job {job_id} was not deleted: {refusal.why}; {late}", flush=True)


@record
class Refusal:
    why: str
    is_final: bool = False


def _force_delete(job_id: str, environ: Mapping[str, str]) -> Refusal | None:
    """Runs `qdel -W force`. None if the job is gone."""
    try:
        run_pbs("qdel", ["-W", "force", job_id], PBS.environ_outside_job(environ))
    except subprocess.CalledProcessError as error:
        if error.returncode in (query.FINISHED, query.UNKNOWN_JOB):
            return None
        return Refusal(why=error.stderr.strip(), is_final=error.returncode == query.DENIED)
    except Unreachable as error:
        return Refusal(why=str(error).strip())
    return None


def take_over_run(run_dir: RunDir, environ: Mapping[str, str]) -> str | None:
    """Records this job as the job of the run. Returns a reason if it must not continue the run. The caller must hold
    the lease."""
    job_id, recorded_id = environ.get("PBS_JOBID", ""), run_dir.read_native_id()
    events = list(read_events(run_dir.events))
    finished = has_finished(events) and not _is_rerun(run_dir, job_id, events)
    refusal = takeover_refusal(job_id, recorded_id, finished=finished)
    if refusal is None and job_id and query.has_successor(job_id, recorded_id):
        # the submitter died before it wrote the id
        run_dir.write(run_dir.native_id, f"{job_id}\n".encode())
    return refusal


def _is_rerun(run_dir: RunDir, job_id: str, events: Sequence[Event]) -> bool:
    """Whether PBS ended the job with TERM, which looked like a cancel, and restarted it under the same id."""
    same = query.job_number(job_id) == query.job_number(run_dir.read_native_id())
    return same and was_cancelled(events) and not run_dir.cancel_mark.exists()


def takeover_refusal(job_id: str, recorded_id: str, *, finished: bool) -> str | None:
    """Why a job that has just started must not continue the run. `recorded_id` is the job id in the run directory."""
    if finished:
        return f"the run ended before job {job_id} started"
    ours, recorded = sequence_number(job_id), sequence_number(recorded_id)
    if ours is not None and recorded is not None and recorded > ours:
        return f"job {job_id} was replaced by {recorded_id}, which continues this run"
    return None


def sequence_number(job_id: str) -> int | None:
    """The sequence number of a job, which grows with each job. None for an id that is not from PBS."""
    digits = query.job_number(job_id).partition("[")[0]
    return int(digits) if digits.isdecimal() else None
