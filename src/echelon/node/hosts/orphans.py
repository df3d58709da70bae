"""What agents do when the host of their supervisor is lost: with --no-kill nobody else would put the job back."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from functools import partial

from echelon.errors import EchelonError
from echelon.events import Kind, append_event
from echelon.job import Job
from echelon.node.hosts import Unreachable
from echelon.node.hosts.claim import Claim
from echelon.node.hosts.slurm import first_host, is_down
from echelon.node.hosts.slurm_requeue import put_back
from echelon.run_dir import AttemptDir, RunDir

PATIENCE_SECONDS = 900.0  # sites give a silent node up after as many as 300
LOOK_SECONDS = 3.0


def requeue_without_supervisor(job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
    """Once Slurm itself has given that host up. The ranks of this node are gone by now."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing left to clean up
    if job.scheduler == "pbs":
        from echelon.node.hosts.pbs_orphans import follow_up

        follow_up(job, RunDir(attempt.path.parent), attempt, environ, PATIENCE_SECONDS)
    if job.scheduler != "slurm":
        return
    run_dir, first = RunDir(attempt.path.parent), first_host(environ)
    claim = Claim(attempt)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if is_down(first, environ):
                if claim.is_ours():
                    facts = {"reason": "the host of the supervisor is down", "lost_hosts": [first], "counts": False}
                    note = partial(append_event, run_dir.events, Kind.REQUEUED, attempt.number, **facts)
                    put_back(job, run_dir, environ, (first,), note)
                return
        except Unreachable:
            pass  # it may be this node that is cut off
        except (OSError, EchelonError) as error:
            print(f"the job lost its first node and is not requeued: {error}", flush=True)
            return
        time.sleep(LOOK_SECONDS)
