"""Jobs that are detached processes on this machine: the base class of the backends local, ssh and allocation."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from echelon.backends import Backend, EarlyExit
from echelon.errors import SchedulerError
from echelon.shell import Command, format_command
from echelon.states import JobState, JobStatus

if TYPE_CHECKING:
    from echelon.attempt_dir import AttemptDir
    from echelon.job import Job
    from echelon.run_dir import RunDir


class ProcessBackend(Backend):
    runs_script_here = True

    def submit(self, run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:  # noqa: ARG002
        return start_job(run_dir, environ)

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        return list(map(process_status, run_dirs))

    def query_interval(self, seconds: float) -> float:  # noqa: ARG002  reading /proc is cheap
        return 1.0

    def cancel(self, run_dir: RunDir, *, force: bool = False) -> bool:  # noqa: ARG002
        return terminate_job(run_dir)

    def reason_to_exit(self, run_dir: RunDir, environ: Mapping[str, str]) -> EarlyExit | None:  # noqa: ARG002
        """None: only echelon starts such a job."""
        return None

    def requeue_without_supervisor(self, job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
        """Does nothing: the job ended with its supervisor."""


def supervisor_command(job: Job, run_dir: RunDir) -> Command:
    return node_side_command(job, run_dir, "supervise")


def node_side_command(job: Job, run_dir: RunDir, part: str) -> Command:
    """A command of the node side that the job script runs, outside of any container."""
    return Command(argv=(job.outer_python, "-I", str(run_dir.node_side), part, str(run_dir.path)))


def process_script(job: Job, run_dir: RunDir, remark: str) -> str:
    """The script of a job that is a process on this machine."""
    lines = (
        "#!/bin/sh",
        f"# {job.name}: {remark}",
        f"{Command(argv=('cd', job.cwd)).shell_lines()[0]} || exit",
        *supervisor_command(job, run_dir).shell_lines(replace_shell=True),
    )
    return "\n".join(lines) + "\n"


def start_job(run_dir: RunDir, environ: Mapping[str, str]) -> str:
    """Starts the job script in a new session, so it survives the terminal. Returns its pid and start time."""
    import subprocess  # here, because render must stay fast

    from echelon.system.processes import start_time
    from echelon.system.signals import SUPERVISOR_SIGNALS

    output = os.open(run_dir.job_output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)  # pending until handled
    try:
        process = subprocess.Popen(
            ["/bin/sh", str(run_dir.job_script)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        raise SchedulerError("cannot start the job script", origin=str(run_dir.job_script), why=str(error)) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(output)
    started = start_time(process.pid)
    if started is None:
        raise SchedulerError(
            "the job script ended at once",
            origin=str(run_dir.job_script),
            why=run_dir.job_output.read_text(errors="replace")[-2000:].strip() or f"exit code {process.wait()}",
            hint=format_command(("sh", str(run_dir.job_script))),
        )
    return f"{process.pid} {started}"


def process_status(run_dir: RunDir) -> JobStatus | None:
    return None if _live_pid(run_dir) is None else JobStatus(state=JobState.RUNNING, native="alive")


def terminate_job(run_dir: RunDir) -> bool:
    """Sends TERM to the supervisor. A second TERM makes it end the ranks at once. False if it had already ended."""
    pid = _live_pid(run_dir)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def _live_pid(run_dir: RunDir) -> int | None:
    """The pid of the live supervisor. The start time is compared because the kernel may have reused the pid."""
    from echelon.system.processes import start_time

    try:
        pid, started = map(int, run_dir.read_native_id().split()[:2])
    except ValueError:
        return None
    return pid if start_time(pid) == started else None
