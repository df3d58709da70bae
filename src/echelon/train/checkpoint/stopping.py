"""Detection of a stop request, by a flag or, without an agent, by SIGTERM or SIGUSR1; and the time left to save."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from echelon.errors import EchelonError
from echelon.run_dir import RunDir
from echelon.train.progress import notice_file, notice_file_exists

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
BATCH_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID")
SAVE_TIME_FACTOR = 1.5
"""Safety factor: a save may take this many times as long as the longest one so far and must still be in time."""


class StopListener:
    """Detects a stop request. A signal handler only records the signal: nothing is saved inside a handler."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._before: dict[int, Any] = {}
        self._mark: Path | None = None
        self._flag = notice_file()

    def listen(self) -> None:
        """Installs signal handlers, except for signals that the script handles. With an agent, only the agent's flag
        requests a stop."""
        if threading.current_thread() is not threading.main_thread():
            return
        if "ECHELON_NODE_DIR" in os.environ:
            self._ignore_sigterm_in_batch_job()
            return
        for signum in STOP_SIGNALS:
            if signal.getsignal(signum) is signal.SIG_DFL:
                self._before[signum] = signal.signal(signum, self._record_signal)

    def _ignore_sigterm_in_batch_job(self) -> None:
        """Ignores SIGTERM in a batch job, and creates a file that marks this rank.

        A scheduler that ends a job early sends SIGTERM to every process. The agent then publishes the time that is
        left. The agent kills a marked rank with SIGKILL, because the rank would ignore its SIGTERM, too.
        """
        in_a_batch_job = any(name in os.environ for name in BATCH_JOB_VARIABLES)
        if not in_a_batch_job or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        before = signal.signal(signal.SIGTERM, _ignore_signal)
        try:
            mark = Path(os.environ["ECHELON_NODE_DIR"], f"outlives-term-{os.environ['RANK']}")
            mark.touch()  # after the handler, whose installation removes an earlier mark (agent/notices.py)
        except (KeyError, OSError):
            signal.signal(signal.SIGTERM, before)
            return
        self._mark, self._before[signal.SIGTERM] = mark, before

    def close(self) -> None:
        for signum, handler in self._before.items():
            if signal.getsignal(signum) in (self._record_signal, _ignore_signal):
                signal.signal(signum, handler)
        self._before.clear()
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)

    def _record_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._signal = signum

    def is_stop_requested(self) -> bool:
        return self._signal is not None or (self._flag is not None and notice_file_exists(self._flag))

    @property
    def reason(self) -> str:
        return "stop notice" if self._signal is None else signal.Signals(self._signal).name


def _ignore_signal(_signum: int, _frame: FrameType | None) -> None:
    pass


def is_successful_exit(error: BaseException) -> bool:
    """Whether an exception ends the script with exit code 0, as sys.exit() does."""
    return isinstance(error, SystemExit) and (error.code is None or error.code == 0)


def seconds_left() -> float | None:
    """Seconds until the time limit, from the agent's flag; None if unknown."""
    try:
        with open(f"{os.environ['ECHELON_NODE_DIR']}/notice") as notice_file:  # noqa: PTH123  as in train/progress.py
            left = float(notice_file.read()) - time.time()
    except (KeyError, OSError, ValueError):
        return None
    return left if left < float("inf") else None


def notice_lead_seconds(run: Path | None) -> float | None:
    """Seconds from this run's notice to its time limit; None if it has no time limit."""
    if run is None:
        return None
    try:
        job = RunDir(run).read_job()
    except EchelonError:
        return None
    return job.policies.notice.total_seconds() if job.resources.time_limit is not None else None


def short_notice_warning(save_seconds: float, left: float | None) -> str | None:
    """A warning if the `left` seconds may be too short for a save; None if they are enough or unknown."""
    if left is None or save_seconds * SAVE_TIME_FACTOR <= left:
        return None
    wanted = max(1, round(save_seconds * 2 * SAVE_TIME_FACTOR))
    return f"a save has taken {save_seconds:.1f} s, and {left:.0f} s are left; --notice {wanted}s would be safe"
