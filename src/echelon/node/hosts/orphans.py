"""What agents do when the host of their supervisor is lost: with --no-kill nobody else would put the job back."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping

from echelon.job import Job
from echelon.node.hosts import Unreachable
from echelon.node.hosts.slurm import first_host_is_down
from echelon.node.hosts.slurm_tools import ask
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
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if first_host_is_down(environ):
                if attempt.claim_orphans():
                    ask(["scontrol", "requeue", environ["SLURM_JOB_ID"]], environ)
                return
        except Unreachable:
            pass  # it may be this node that is cut off
        except subprocess.CalledProcessError as refusal:
            print(f"the job lost its first node and cannot be requeued: {refusal.stderr.strip()}", flush=True)
            return
        time.sleep(LOOK_SECONDS)
