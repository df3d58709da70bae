"""Who gives us nodes. A scheduler renders the job script, purely, and is the only one to act on the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.states import JobStatus


class Scheduler(Protocol):
    def render(self, job: Job, run_dir: RunDir) -> str:
        """The exact job script. Touches nothing."""

    def submit(self, run_dir: RunDir, environ: Mapping[str, str]) -> str:
        """Hands the job script over; the scheduler's own id for it."""

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        """What the scheduler knows of each, asked for all at once; None where it knows nothing."""

    def cancel(self, run_dir: RunDir) -> bool:
        """Asks for the end of the run; false if there was nothing left to end."""
