"""A Slurm job goes back into the queue, from inside of it; where that is not allowed, a successor is submitted."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from echelon import hostlist, scontrol
from echelon.batch_facts import SLURM
from echelon.errors import SchedulerError
from echelon.events import read_events
from echelon.job import Job
from echelon.node.history import hosts_lost
from echelon.node.hosts import Unreachable
from echelon.node.hosts.slurm_tools import ask, parse_standing, show_job
from echelon.run_dir import RunDir

NOTHING = ("", "(null)")


def put_back(
    job: Job, run_dir: RunDir, environ: Mapping[str, str], lost: Sequence[str],
    note: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Unless somebody did it before us: then it is the next attempt that would be put back. Raises Unreachable.

    Slurm ends us, once it has taken the job back: `note` comes before anything else.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes at once, to what we start here too
    job_id = environ.get("SLURM_JOB_ID", "")
    restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
    known, shown = (*hosts_lost(read_events(run_dir.events)), *lost), ""
    try:
        line = ask(show_job(job_id), environ)
        shown = scontrol.fields_of(line).get("ExcNodeList", "")
        if parse_standing(line, restarts).taken_back:
            return None
        ask(["scontrol", "requeue", job_id], environ)
    except subprocess.CalledProcessError as refusal:
        if refusal.returncode < 0:
            raise Unreachable(f"scontrol was ended by signal {-refusal.returncode}") from refusal
        left_out = left_out_of(job.booking.exclude, shown, known)
        _submit_successor(run_dir, environ, left_out if known else (), refusal.stderr.strip())
        return note()
    note()
    if known:
        _exclude(job_id, environ, left_out_of(job.booking.exclude, shown, known))
    return None


def left_out_of(asked: str | None, shown: str, lost: Sequence[str]) -> list[str]:
    """What the next attempt must not get: either option replaces the list that there is. `shown` is Slurm's own, and
    may be short: of hosts that were asked for by a file, say, only Slurm knows. Pure."""
    lists = [text for text in (asked or "", shown) if text not in NOTHING and "/" not in text]
    return list(dict.fromkeys((*(name for text in lists for name in _names(text)), *lost)))


def _names(text: str) -> list[str]:
    try:
        return hostlist.expand(text)
    except ValueError:
        return [text]  # Slurm will know


def _exclude(job_id: str, environ: Mapping[str, str], names: Sequence[str]) -> None:
    try:
        ask(["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={','.join(names)}"], environ)
    except (subprocess.CalledProcessError, Unreachable) as refusal:
        print(f"Slurm would not exclude {', '.join(names)}: {getattr(refusal, 'stderr', refusal)}", flush=True)


def _submit_successor(run_dir: RunDir, environ: Mapping[str, str], left_out: Sequence[str], refusal: str) -> None:
    task = environ.get("SLURM_ARRAY_TASK_ID")
    options = [f"--array={task}"] if task else []
    options += [f"--exclude={','.join(left_out)}"] if left_out else []
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
    if run_dir.cancel_mark.exists():  # it was for the job that ran then
        _withdraw(printed, environ)


def _withdraw(printed: str, environ: Mapping[str, str]) -> None:
    number, _, cluster = printed.strip().partition(";")
    where = ["-M", cluster] if cluster else []
    try:
        ask(["scancel", *where, number], SLURM.outside(environ))
    except subprocess.CalledProcessError as refusal:
        print(f"the run was cancelled, and its successor {number} is not: {refusal.stderr.strip()}", flush=True)


def successor_id(printed: str, task: str | None) -> str:
    """`123;cluster` with the task's number where the control side looks for it. Pure."""
    number, separator, cluster = printed.strip().partition(";")
    return (f"{number}_{task}" if task else number) + separator + cluster
