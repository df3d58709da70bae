"""A Slurm job goes back into the queue, from inside of it; where that is not allowed, a successor is submitted."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence

from echelon.batch_facts import SLURM
from echelon.errors import SchedulerError
from echelon.node.hosts import Unreachable
from echelon.node.hosts.slurm_tools import ask, parse_standing, show_job
from echelon.run_dir import RunDir


def put_back(run_dir: RunDir, environ: Mapping[str, str], lost: Sequence[str]) -> None:
    """Unless somebody did it before us: then it is the next attempt that would be put back. Raises Unreachable."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes at once, to what we start here too
    job_id = environ.get("SLURM_JOB_ID", "")
    restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
    try:
        if parse_standing(ask(show_job(job_id), environ), restarts).taken_back:
            return
        ask(["scontrol", "requeue", job_id], environ)
    except subprocess.CalledProcessError as refusal:
        if refusal.returncode < 0:
            raise Unreachable(f"scontrol was ended by signal {-refusal.returncode}") from refusal
        _submit_successor(run_dir, environ, lost, refusal.stderr.strip())
        return
    if lost:
        _exclude(job_id, environ, lost)


def _exclude(job_id: str, environ: Mapping[str, str], lost: Sequence[str]) -> None:
    try:
        ask(["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={','.join(lost)}"], environ)
    except (subprocess.CalledProcessError, Unreachable) as refusal:
        print(f"Slurm would not exclude {', '.join(lost)}: {getattr(refusal, 'stderr', refusal)}", flush=True)


def _submit_successor(run_dir: RunDir, environ: Mapping[str, str], lost: Sequence[str], refusal: str) -> None:
    task = environ.get("SLURM_ARRAY_TASK_ID")
    options = [f"--array={task}"] if task else []
    options += [f"--exclude={','.join(lost)}"] if lost else []
    after = f"--dependency=afterany:{environ.get('SLURM_JOB_ID', '')}"
    try:
        printed = ask(["sbatch", "--parsable", after, *options, str(run_dir.job_script)], SLURM.outside(environ))
    except subprocess.CalledProcessError as error:
        raise SchedulerError(
            "the job can neither be requeued nor submitted again",
            why=f"{refusal}\n{error.stderr.strip()}",
            hint="echelon resume {run}, from a login node",
        ) from error
    run_dir.write(run_dir.native_id, f"{successor_id(printed, task)}\n".encode())


def successor_id(printed: str, task: str | None) -> str:
    """`123;cluster` with the task's number where the control side looks for it. Pure."""
    number, separator, cluster = printed.strip().partition(";")
    return (f"{number}_{task}" if task else number) + separator + cluster
