"""What agents do when the first host of a PBS job is lost with the supervisor, long before PBS itself notices."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from echelon import qstat
from echelon.batch_facts import PBS
from echelon.errors import SchedulerError
from echelon.events import Kind, append_event
from echelon.exit_codes import REQUEUE
from echelon.job import Job
from echelon.node import lease
from echelon.node.attempts import requeues_so_far
from echelon.node.hosts import Unreachable
from echelon.node.hosts.claim import Claim
from echelon.node.hosts.pbs import submit_successor
from echelon.node.hosts.pbs_tools import ask
from echelon.run_dir import AttemptDir, RunDir

LOOK_SECONDS = 3.0


def follow_up(job: Job, run_dir: RunDir, attempt: AttemptDir, environ: Mapping[str, str], patience: float) -> None:
    """One agent submits the successor, once nobody holds the lease and PBS still believes that the job runs."""
    job_id = environ.get("PBS_JOBID", "")
    written = _size(run_dir.events)
    claim = Claim(attempt)
    deadline = time.monotonic() + patience
    time.sleep(job.policies.heartbeat.total_seconds())  # a supervisor that lives writes down by then that it lost us
    while time.monotonic() < deadline and _is_open(run_dir, attempt, job_id) and _size(run_dir.events) == written:
        try:
            if not lease.is_held(run_dir.lease):
                return _go_on(job, run_dir, claim, environ) if _still_runs(job_id, environ) else None
        except Unreachable:
            pass  # it may be this host that is cut off
        except (SchedulerError, subprocess.CalledProcessError) as refusal:
            return print(f"the job lost its first host, and nothing can follow it: {refusal}", flush=True)
        time.sleep(LOOK_SECONDS)
    return None


def _is_open(run_dir: RunDir, attempt: AttemptDir, job_id: str) -> bool:
    """Nobody has ended the attempt, cancelled the run or submitted what follows."""
    ours = qstat.number(run_dir.read_native_id()) == qstat.number(job_id)
    return ours and attempt.read_exit_code() is None and not run_dir.cancel_mark.exists()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _still_runs(job_id: str, environ: Mapping[str, str]) -> bool:
    fields = qstat.find(qstat.parse(ask("qstat", ["-f", job_id], environ)), job_id) or {}
    return fields.get("job_state") == "R"


def _go_on(job: Job, run_dir: RunDir, claim: Claim, environ: Mapping[str, str]) -> None:
    """The job is deleted, for what is left of it only keeps hosts from others."""
    if requeues_so_far(run_dir) < job.policies.requeues and claim.is_ours():
        submit_successor(run_dir, environ)
        reason = "the first host was lost, and the supervisor with it"
        attempt = claim.attempt.number
        append_event(run_dir.events, Kind.REQUEUED, attempt, outcome="requeued", exit_code=REQUEUE, reason=reason)
        ask("qdel", [environ["PBS_JOBID"]], PBS.outside(environ))
