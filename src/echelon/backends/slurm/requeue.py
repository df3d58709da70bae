"""Queries and requeues a Slurm job from inside it, also after its first node is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from echelon.attempt_dir import AttemptDir
from echelon.backends.batch import SLURM
from echelon.backends.batch_hosts import QueryProcess, RequeueClaim, run_command
from echelon.backends.hosts import SchedulerView, Unreachable
from echelon.backends.slurm.query import parse_fields, parse_time
from echelon.errors import EchelonError, SchedulerError
from echelon.events import Kind, append_event, collect_lost_hosts, last_finished, read_events
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.system import hostlist

ANSWER_SECONDS = 3.0
EMPTY_LISTS = ("", "(null)")
PATIENCE_SECONDS = 900.0  # Slurm marks a silent node down after up to 300 s, depending on the site
POLL_SECONDS = 3.0


def parse_scheduler_view(line: str, restart_count: int) -> SchedulerView:
    """`is_requeued` if Slurm counts more restarts than `restart_count`."""
    fields = parse_fields(line)
    restarts = fields.get("Restarts", "")
    return SchedulerView(
        end_at=parse_time(fields.get("EndTime", "")),
        is_requeued=restarts.isdecimal() and int(restarts) > restart_count,
    )


def fixed_format_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make Slurm print messages and dates in a fixed format, in any locale of the user."""
    return {**environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def run_slurm(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """The output of the command. Raises Unreachable, or CalledProcessError if Slurm refuses the request."""
    return run_command(argv, fixed_format_environ(environ), SLURM)


def show_job_argv(job_id: str) -> tuple[str, ...]:
    return ("scontrol", "show", "job", job_id, "-o")


def start_view_query(job_id: str, restart_count: int, environ: Mapping[str, str]) -> QueryProcess:
    return QueryProcess(
        show_job_argv(job_id),
        fixed_format_environ(environ),
        ANSWER_SECONDS,
        lambda text: parse_scheduler_view(text, restart_count),
    )


def requeue_job(
    job: Job,
    run_dir: RunDir,
    environ: Mapping[str, str],
    lost: Sequence[str],
    record_requeue: Callable[[], None] = lambda: None,
) -> None:
    """Requeues the job, or submits a successor if Slurm refuses. Raises Unreachable.

    Does nothing if Slurm has already requeued the job: a second requeue would end the next attempt. After a requeue
    Slurm ends this process, so `record_requeue` is called before any other step.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm sends it at once, also to the tools that are started here
    job_id = environ.get("SLURM_JOB_ID", "")
    restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
    known, shown = (*collect_lost_hosts(read_events(run_dir.events)), *lost), ""
    try:
        line = run_slurm(show_job_argv(job_id), environ)
        shown = parse_fields(line).get("ExcNodeList", "")
        if parse_scheduler_view(line, restarts).is_requeued:
            return None
        run_slurm(["scontrol", "requeue", job_id], environ)
    except subprocess.CalledProcessError as refusal:
        if refusal.returncode < 0:
            raise Unreachable(f"scontrol was ended by signal {-refusal.returncode}") from refusal
        excluded = excluded_hosts(job.booking.exclude, shown, known)
        _submit_successor(run_dir, environ, excluded if known else (), refusal.stderr.strip())
        return record_requeue()
    record_requeue()
    if known:
        _exclude_hosts(job_id, environ, excluded_hosts(job.booking.exclude, shown, known))
    return None


def excluded_hosts(asked: str | None, shown: str, lost: Sequence[str]) -> list[str]:
    """The hosts to exclude from the next attempt: the requested hosts, the hosts in `shown`, and the lost hosts. Pure.

    The whole list is needed because both sbatch and scontrol replace the existing list. `shown` is Slurm's own list. It
    may be incomplete, but only it has the hosts of an exclude file.
    """
    lists = [text for text in (asked or "", shown) if text not in EMPTY_LISTS and "/" not in text]
    return list(dict.fromkeys((*(name for text in lists for name in _expand_or_keep(text)), *lost)))


def _expand_or_keep(text: str) -> list[str]:
    try:
        return hostlist.expand(text)
    except ValueError:
        return [text]  # passed to Slurm unchanged


def _exclude_hosts(job_id: str, environ: Mapping[str, str], names: Sequence[str]) -> None:
    try:
        run_slurm(["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={','.join(names)}"], environ)
    except (subprocess.CalledProcessError, Unreachable) as refusal:
        print(f"Slurm did not exclude {', '.join(names)}: {getattr(refusal, 'stderr', refusal)}", flush=True)


def _submit_successor(run_dir: RunDir, environ: Mapping[str, str], excluded: Sequence[str], refusal: str) -> None:
    task = environ.get("SLURM_ARRAY_TASK_ID")
    options = [f"--array={task}"] if task else []
    options += [f"--exclude={','.join(excluded)}"] if excluded else []
    after = f"--dependency=afterany:{environ.get('SLURM_JOB_ID', '')}"
    try:
        printed = run_slurm(
            ["sbatch", "--parsable", after, *options, str(run_dir.job_script)], SLURM.environ_outside_job(environ)
        )
    except subprocess.CalledProcessError as error:
        raise SchedulerError(
            "the job can neither be requeued nor submitted again",
            why=f"{refusal}\n{error.stderr.strip()}",
            hint="echelon resume {run}, from a login node",
        ) from error
    run_dir.write(run_dir.native_id, f"{successor_id(printed, task)}\n".encode())
    if run_dir.cancel_mark.exists():  # the cancel reached only the old job
        _cancel_successor(printed, environ)


def _cancel_successor(printed: str, environ: Mapping[str, str]) -> None:
    number, _, cluster = printed.strip().partition(";")
    where = ["-M", cluster] if cluster else []
    try:
        run_slurm(["scancel", *where, number], SLURM.environ_outside_job(environ))
    except subprocess.CalledProcessError as refusal:
        print(f"the run was cancelled, but its successor {number} was not: {refusal.stderr.strip()}", flush=True)


def successor_id(printed: str, task: str | None) -> str:
    """The job id in the format of the control side: `123;cluster` becomes `123_4;cluster` for task 4. Pure."""
    number, separator, cluster = printed.strip().partition(";")
    return (f"{number}_{task}" if task else number) + separator + cluster


def first_host(environ: Mapping[str, str]) -> str:
    """The host of the supervisor."""
    return hostlist.step_hosts(environ, ("SLURM_JOB_NODELIST",))[0]


def is_down(host: str, environ: Mapping[str, str]) -> bool:
    """Whether Slurm has marked the node down. Raises Unreachable."""
    try:
        line = run_slurm(["scontrol", "show", "node", host, "-o"], environ)
    except subprocess.CalledProcessError:
        return False
    return "State=DOWN" in line


def requeue_after_loss_of_first_node(job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
    """Waits until Slurm has marked the first host down. Then one agent requeues the job."""
    run_dir, first = RunDir(attempt.path.parent), first_host(environ)
    claim = RequeueClaim(attempt)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if is_down(first, environ):
                if claim.is_ours():
                    facts = {"reason": "the host of the supervisor is down", "lost_hosts": [first], "counts": False}
                    record_requeue = partial(append_event, run_dir.events, Kind.REQUEUED, attempt.number, **facts)
                    requeue_job(job, run_dir, environ, (first,), record_requeue)
                return
        except Unreachable:
            pass  # this node may be cut off from the network
        except (OSError, EchelonError) as error:
            print(f"the job lost its first node and is not requeued: {error}", flush=True)
            return
        time.sleep(POLL_SECONDS)


def exit_code_before_restart(run_dir: RunDir, environ: Mapping[str, str]) -> int | None:
    """The exit code of a run that ended before Slurm restarted its job. None if the run continues.

    Slurm 24.11 requeues a job that was preempted with GraceTime a second time when it completes, with any exit code.
    Only a success and a cancel by `echelon cancel` count as an end: a TERM from Slurm also looks like a cancel.
    """
    if not int(environ.get("SLURM_RESTART_COUNT") or 0):
        return None
    end = last_finished(read_events(run_dir.events))
    outcome = end.fields.get("outcome") if end is not None else None
    if end is None or not (outcome == "succeeded" or (outcome == "cancelled" and run_dir.cancel_mark.exists())):
        return None
    code = end.fields.get("exit_code")
    return code if isinstance(code, int) else 0
