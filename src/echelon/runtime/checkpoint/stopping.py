"""Is it time to stop? A flag, and without an agent a bare SIGTERM or SIGUSR1, too; and is there time to save?"""

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
from echelon.runtime.notice import flag, flag_is_up

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
BATCH_JOBS = ("SLURM_JOB_ID", "PBS_JOBID")
MARGIN = 1.5
"""A save may take this much longer than the longest one so far, and is still in time."""


class Alarm:
    """Knows whether somebody said "stop soon". A handler only takes a note: nothing is ever saved inside of one."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._before: dict[int, Any] = {}
        self._mark: Path | None = None
        self._flag = flag()

    def listen(self) -> None:
        """Signals that the script handles itself are left to it. With an agent the word is the agent's to give."""
        if threading.current_thread() is not threading.main_thread():
            return
        if "ECHELON_NODE_DIR" in os.environ:
            self._outlive_the_scheduler()
            return
        for signum in SIGNALS:
            if signal.getsignal(signum) is signal.SIG_DFL:
                self._before[signum] = signal.signal(signum, self._note)

    def _outlive_the_scheduler(self) -> None:
        """A batch scheduler that ends a job early sends TERM to every process; the agent then says how long there is.
        The agent itself ends a rank that has this mark by KILL: its TERM would not be heard either."""
        in_a_batch_job = any(name in os.environ for name in BATCH_JOBS)
        if not in_a_batch_job or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        try:
            mark = Path(os.environ["ECHELON_NODE_DIR"], f"outlives-term-{os.environ['RANK']}")
            mark.touch()
        except (KeyError, OSError):
            return
        self._mark = mark
        self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, _pass_over)

    def close(self) -> None:
        for signum, handler in self._before.items():
            if signal.getsignal(signum) in (self._note, _pass_over):
                signal.signal(signum, handler)
        self._before.clear()
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        self._signal = signum

    def rings(self) -> bool:
        return self._signal is not None or (self._flag is not None and flag_is_up(self._flag))

    @property
    def reason(self) -> str:
        return "the notice" if self._signal is None else signal.Signals(self._signal).name


def _pass_over(_signum: int, _frame: FrameType | None) -> None:
    pass


def seconds_left() -> float | None:
    """Until the time limit, as the agent's flag says; None where nobody knows."""
    try:
        with open(f"{os.environ['ECHELON_NODE_DIR']}/notice") as flag:  # noqa: PTH123  as in notice.py
            left = float(flag.read()) - time.time()
    except (KeyError, OSError, ValueError):
        return None
    return left if left < float("inf") else None


def asked_lead(run: Path | None) -> float | None:
    """How long before the time limit this run's notice comes; None without one."""
    if run is None:
        return None
    try:
        job = RunDir(run).read_job()
    except EchelonError:
        return None
    return job.policies.notice.total_seconds() if job.resources.time_limit is not None else None


def lead_remark(save_seconds: float, left: float | None) -> str | None:
    """What a person should know when there may be too little time; None when there is enough."""
    if left is None or save_seconds * MARGIN <= left:
        return None
    wanted = max(1, round(save_seconds * 2 * MARGIN))
    return f"a save has taken {save_seconds:.1f} s, and {left:.0f} s are left; --notice {wanted}s would be safe"
