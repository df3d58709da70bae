"""What the hosts of a batch job have in common: agents are let go of slowly, and schedulers are asked with patience."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from echelon.errors import SchedulerError
from echelon.job import Job
from echelon.node.hosts import Dialled, Unreachable

LEAVE_SECONDS = 8.0  # an agent whose channel is closed ends its ranks and cleans up in less
PATIENCE_SECONDS = 900.0
AFTER_THE_END_SECONDS = 10.0


class BatchHosts(Dialled):
    comes_back = False

    def __init__(self) -> None:
        self._leaving: list[tuple[subprocess.Popen[bytes], float]] = []

    def end(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:  # noqa: ARG002  not of this host
        """It leaves by itself when its channel is closed; what started it would kill it, ranks, folder and all."""
        self._leaving.append((process, time.monotonic() + LEAVE_SECONDS))

    def tend(self) -> None:
        """What holds on to an agent that has not left is told to end it, and is ended itself a moment later."""
        now = time.monotonic()
        for process, deadline in self._leaving:
            if process.poll() is None and now > deadline + 1.0:
                process.kill()
            elif process.poll() is None and now > deadline:
                process.terminate()
        self._leaving = [entry for entry in self._leaving if entry[0].poll() is None]

    def close(self) -> None:
        while self._leaving:
            self.tend()
            time.sleep(0.02)


def reserve_of(job: Job) -> float:
    """TERM at the end of a job's time looks like a cancel, and KILL follows: we are through before. Pure."""
    enough = job.policies.grace.total_seconds() + AFTER_THE_END_SECONDS
    limit = job.resources.time_limit
    return enough if limit is None else min(enough, limit.total_seconds() / 10)


def patiently(action: Callable[[], None], scheduler: str) -> None:
    """Again and again, ever less often, while the scheduler does not answer; raises SchedulerError."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = 1.0
    while True:
        try:
            action()
        except Unreachable as error:
            if time.monotonic() > deadline:
                what = f"{scheduler} cannot be reached, so nothing follows this attempt"
                raise SchedulerError(what, why=str(error)) from None
        else:
            return
        time.sleep(pause)
        pause = min(pause * 2, 30.0)
