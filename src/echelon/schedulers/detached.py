"""A detached process on this machine is the job: what `--on local` and `--on allocation` share."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from echelon.command import typed
from echelon.errors import SchedulerError
from echelon.node.processes import start_time
from echelon.node.wake import SUPERVISOR_SIGNALS
from echelon.run_dir import RunDir
from echelon.states import JobState, JobStatus


def submit(run_dir: RunDir, environ: Mapping[str, str]) -> str:
    """Starts the job script in a session of its own, so that it survives the terminal."""
    import subprocess  # not for render: it must stay quick

    output = os.open(run_dir.job_output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)  # they wait until somebody listens
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
            hint=typed(("sh", str(run_dir.job_script))),
        )
    return f"{process.pid} {started}"


def query(run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
    return [JobStatus(state=JobState.RUNNING, native="alive") if _pid(run) is not None else None for run in run_dirs]


def pause(seconds: float) -> float:  # noqa: ARG001  every scheduler is asked the same way
    """A look at /proc costs nothing."""
    return 1.0


def cancel(run_dir: RunDir, *, again: bool = False) -> bool:  # noqa: ARG001  a second TERM says it by itself
    pid = _pid(run_dir)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def _pid(run_dir: RunDir) -> int | None:
    """The supervisor, if it lives: the pid alone may belong to someone else by now."""
    try:
        pid, started = map(int, run_dir.read_native_id().split()[:2])
    except ValueError:
        return None
    return pid if start_time(pid) == started else None
