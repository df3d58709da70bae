"""Who gives us nodes. A scheduler renders the job script, purely, and is the only one to act on the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.states import JobStatus


class Wishes(Protocol):
    """The settings of a job, as far as they were given."""

    def get(self, key: str) -> Any: ...

    def asked(self, key: str) -> Any:
        """None where nobody but the default says anything."""

    def origin(self, key: str) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Found:
    """A setting that nobody gave, and where the scheduler knows it from."""

    value: Any
    origin: str


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a scheduler makes of the wishes."""

    gpus_per_node: int = 0
    found: Mapping[str, Found] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Where no scheduler will choose them."""
    python_is_there: bool = False
    """The ranks' Python is one of the hosts' own, so there is nothing to look for here."""


class Scheduler(Protocol):
    STARTS_HERE: bool
    """The job script runs on this machine, with what this machine has."""
    ARRAY_INDEX: str
    """The variable that tells an element of an array its index."""

    def fit(self, wishes: Wishes, environ: Mapping[str, str]) -> Fit:
        """Settles what was left open, and refuses what cannot be."""

    def summary(self, job: Job, native_id: str) -> str:
        """Where a job that was just submitted is, in a few words; empty where that goes without saying."""

    def render(self, job: Job, run_dir: RunDir) -> str:
        """The exact job script. Touches nothing."""

    def submit(self, run_dir: RunDir, environ: Mapping[str, str]) -> str:
        """Hands the job script over; the scheduler's own id for it."""

    def element_id(self, native_id: str, index: int) -> str:
        """The id of one element of an array."""

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        """What the scheduler knows of each, asked for all at once; None where it knows nothing."""

    def pause(self, seconds: float) -> float:
        """How long to wait before asking again, this many seconds after something last changed."""

    def cancel(self, run_dir: RunDir, *, again: bool = False) -> bool:
        """Asks for the end of the run, `again` with less patience; false if there was nothing left to end."""
