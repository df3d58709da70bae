"""The states a run can be in, and how each is said to a person."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class JobState(str, enum.Enum):
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    REQUEUED = "REQUEUED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"  # not with the scheduler, and no exit code: never to be taken for success

    @property
    def ended(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    state: JobState
    native: str = ""
    """The scheduler's own word."""
    reason: str = ""
    exit_code: int | None = None
    expected_start: float | None = None
    """When the scheduler thinks that a queued job will start."""
