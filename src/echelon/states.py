"""The states of a run, and the status that a scheduler reports."""

from __future__ import annotations

import enum

from echelon.record import record


class JobState(str, enum.Enum):
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    REQUEUED = "REQUEUED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"  # unknown to the scheduler and without an exit code; never counts as success

    @property
    def ended(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST)


@record
class JobStatus:
    state: JobState
    native: str = ""
    """The scheduler's own name of the state."""
    reason: str = ""
    exit_code: int | None = None
    expected_start: float | None = None
    """When the scheduler expects to start a queued job, in seconds since the epoch."""
