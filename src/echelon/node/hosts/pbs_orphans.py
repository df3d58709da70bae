"""What agents do when the first host of a PBS job is lost with the supervisor, long before PBS itself notices.

Lost, or only cut off: then the supervisor may still write into the run directory, has given up its lease and asks for
a successor that nobody can hear it ask for. What it has written down as requeued is submitted from here.
"""

from __future__ import annotations

import enum
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon import qstat
from echelon.batch_facts import PBS
from echelon.errors import SchedulerError
from echelon.events import Event, Kind, append_event, read_events
from echelon.exit_codes import REQUEUE
from echelon.job import Job
from echelon.node import lease, succession
from echelon.node.history import requeues_so_far
from echelon.node.hosts import Unreachable
from echelon.node.hosts.claim import Claim
from echelon.node.hosts.pbs import submit_successor
from echelon.node.hosts.pbs_tools import ask
from echelon.run_dir import AttemptDir, RunDir

LOOK_SECONDS = 3.0
ENDS = (Kind.REQUEUED, Kind.FINISHED)
GOES_ON = (Kind.STARTED, Kind.GENERATION, Kind.RANK_READY, Kind.FINISHED)
"""What only a supervisor writes that needs nobody's help."""


class Step(enum.Enum):
    WAIT = enum.auto()
    SUBMIT = enum.auto()
    LEAVE = enum.auto()


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What an agent without a supervisor sees of its run."""

    closed: bool = False
    """The run was cancelled, or another job goes on with it."""
    newest: Kind | None = None
    """The last event, if it came since the supervisor was lost, or tells of the attempt's end."""
    exit_code: int | None = None
    lease_held: bool = False
    quiet: bool = True
    """Nothing was written for a heartbeat: a supervisor that lives writes down by then that it lost us."""


def next_step(sight: Sight) -> Step:
    """Pure."""
    if sight.closed or sight.newest in GOES_ON or sight.exit_code not in (None, REQUEUE):
        return Step.LEAVE
    told = sight.newest is Kind.REQUEUED or (sight.newest is None and sight.exit_code is None)
    return Step.SUBMIT if told and sight.quiet and not sight.lease_held else Step.WAIT


def newest_of(events: Sequence[Event], before: int) -> Kind | None:
    """`before` is how many there were when we noticed: we ended our ranks first, and the supervisor may have been
    quicker. Pure."""
    return events[-1].kind if len(events) > before or (events and events[-1].kind in ENDS) else None


class Watch:
    """Looks at the run directory again and again."""

    def __init__(self, job: Job, run_dir: RunDir, attempt: AttemptDir, job_id: str) -> None:
        self._run_dir, self._attempt, self._job_id = run_dir, attempt, job_id
        self._heartbeat = job.policies.heartbeat.total_seconds()
        self._before = self._count = len(list(read_events(run_dir.events)))
        self._changed = time.monotonic()

    def look(self) -> Sight:
        run_dir = self._run_dir
        events = list(read_events(run_dir.events))
        if len(events) != self._count:
            self._count, self._changed = len(events), time.monotonic()
        followed = succession.is_followed(self._job_id, run_dir.read_native_id())
        return Sight(
            closed=followed or run_dir.cancel_mark.exists(),
            newest=newest_of(events, self._before),
            exit_code=self._attempt.read_exit_code(),
            lease_held=lease.is_held(run_dir.lease),
            quiet=time.monotonic() - self._changed >= self._heartbeat,
        )


def follow_up(job: Job, run_dir: RunDir, attempt: AttemptDir, environ: Mapping[str, str], patience: float) -> None:
    """One agent submits the successor, once nobody holds the lease and PBS still believes that the job runs."""
    job_id = environ.get("PBS_JOBID", "")
    claim, watch = Claim(attempt), Watch(job, run_dir, attempt, job_id)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and (step := next_step(sight := watch.look())) is not Step.LEAVE:
        try:
            if step is Step.SUBMIT:
                requeued = sight.newest is Kind.REQUEUED
                return _go_on(job, run_dir, claim, environ, requeued) if _still_runs(job_id, environ) else None
        except Unreachable:
            pass  # it may be this host that is cut off
        except (SchedulerError, subprocess.CalledProcessError) as refusal:
            return print(f"the job lost its first host, and nothing can follow it: {refusal}", flush=True)
        time.sleep(LOOK_SECONDS)
    return None


def _still_runs(job_id: str, environ: Mapping[str, str]) -> bool:
    fields = qstat.find(qstat.parse(ask("qstat", ["-f", job_id], environ)), job_id) or {}
    return fields.get("job_state") == "R"


def _go_on(job: Job, run_dir: RunDir, claim: Claim, environ: Mapping[str, str], requeued: bool) -> None:
    """What the supervisor itself has written down as requeued is counted already."""
    if not requeued and requeues_so_far(read_events(run_dir.events)) >= job.policies.requeues:
        return
    if not claim.is_ours():
        return
    submit_successor(run_dir, environ)
    if not requeued:
        reason = "the first host was lost, and the supervisor with it"
        attempt = claim.attempt.number
        append_event(run_dir.events, Kind.REQUEUED, attempt, outcome="requeued", exit_code=REQUEUE, reason=reason)
    _delete(environ)


def _delete(environ: Mapping[str, str]) -> None:
    """What is left of the job only keeps hosts from others, its successor first of all. By force where PBS does not
    reach its first host, which is what brought us here."""
    job_id = environ["PBS_JOBID"]
    try:
        ask("qdel", [job_id], PBS.outside(environ))
    except (subprocess.CalledProcessError, Unreachable) as refusal:
        print(f"PBS did not delete job {job_id}: {_words(refusal)}", flush=True)
    else:
        return
    try:
        ask("qdel", ["-W", "force", job_id], PBS.outside(environ))
    except (subprocess.CalledProcessError, Unreachable) as refusal:
        late = "its successor waits until PBS gives the job up by itself"
        print(f"nor by force: {_words(refusal)}; {late}, or somebody types qdel -W force {job_id}", flush=True)
    else:
        print(f"job {job_id} was deleted by force", flush=True)


def _words(refusal: Exception) -> str:
    return str(getattr(refusal, "stderr", "") or refusal).strip()
