"""What agents do when the host of their supervisor is lost: with --no-kill nobody else would put the job back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping

from echelon.job import Job
from echelon.node.hosts import Unreachable
from echelon.node.hosts.slurm import first_host_is_down
from echelon.node.hosts.slurm_tools import ask
from echelon.run_dir import AttemptDir

PATIENCE_SECONDS = 900.0  # sites give a silent node up after as many as 300
LOOK_SECONDS = 3.0


def requeue_without_supervisor(job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
    """Once Slurm itself has given that host up. The ranks of this node are gone by now."""
    if job.scheduler != "slurm":
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing left to clean up
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if first_host_is_down(environ):
                if _is_first(attempt):
                    ask(["scontrol", "requeue", environ["SLURM_JOB_ID"]], environ)
                return
        except Unreachable:
            pass  # it may be this node that is cut off
        except subprocess.CalledProcessError as refusal:
            print(f"the job lost its first node and cannot be requeued: {refusal.stderr.strip()}", flush=True)
            return
        time.sleep(LOOK_SECONDS)


def _is_first(attempt: AttemptDir) -> bool:
    """Of all the agents that want to: a file can be made once."""
    try:
        os.close(os.open(attempt.orphaned, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True
