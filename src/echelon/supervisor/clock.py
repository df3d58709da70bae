"""Deadlines of an attempt: notice, time limit, and the longest time in each phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echelon.job import Job, Policies
from echelon.supervisor.state import NoticeDue, Phase, TimeLimitReached


@dataclass
class Clock:
    end_at: float | None
    notice_seconds: float = 0.0
    """Seconds from the notice to the end."""
    reserve_seconds: float = 0.0
    """Seconds before the scheduler's end at which the supervisor ends the attempt itself."""
    notice_given: bool = False
    ended: bool = False

    @classmethod
    def for_job(cls, job: Job, began: float, reserve_seconds: float = 0.0) -> Clock:
        limit = job.resources.time_limit
        end = None if limit is None else began + limit.total_seconds() - reserve_seconds
        return cls(end, job.policies.notice.total_seconds(), reserve_seconds)

    def set_end(self, end: float, now: float) -> None:
        """Sets the end that the scheduler reports. It overrides the end computed from the job's time limit.

        The reserve shrinks to at most a quarter of the remaining time, or a tenth if no end was known.
        """
        self.reserve_seconds = min(self.reserve_seconds, max(0.0, end - now) / (10 if self.end_at is None else 4))
        self.end_at = end - self.reserve_seconds

    def postpone_end(self, seconds: float) -> None:
        """Moves the end by the time that the attempt was stopped.

        Schedulers do not count that time, or soon report the end themselves.
        """
        if self.end_at is not None:
            self.end_at += seconds

    def due_events(self, now: float) -> Iterator[NoticeDue | TimeLimitReached]:
        """Yields each event once."""
        if not self.notice_given and self.end_at is not None and now >= self.end_at - self.notice_seconds:
            self.notice_given = True
            yield NoticeDue()
        if not self.ended and self.end_at is not None and now >= self.end_at:
            self.ended = True
            yield TimeLimitReached()

    def is_notice_near(self, now: float, early: float) -> bool:
        """Whether the clock gives the notice within `early` seconds."""
        return self.end_at is not None and not self.notice_given and now >= self.end_at - self.notice_seconds - early

    def next_deadline(self) -> float:
        if self.end_at is None or self.ended:
            return float("inf")
        return self.end_at if self.notice_given else self.end_at - self.notice_seconds

    def seconds_left(self, now: float) -> float:
        return float("inf") if self.end_at is None else max(0.0, self.end_at - now)


CHECKING_SECONDS = 150.0  # longer than each part of the check has
DRAINING_SECONDS = 30.0
EVIDENCE_SECONDS = 10.0
STOPPING_SECONDS = 20.0


def phase_limit(
    phase: Phase, policies: Policies, seconds_left: float, removal_seconds: float = 0.0, delay: float = 0.0
) -> float | None:
    """The longest time in a phase, in seconds; None if the phase has no limit. Pure.

    `seconds_left` is the time until the end of the attempt. `removal_seconds` is the time to remove containers after
    a stop. `delay` is the time to wait before the next start.
    """
    match phase:
        case Phase.GATHERING | Phase.BINDING:
            return policies.join_timeout.total_seconds()
        case Phase.CHECKING:
            return CHECKING_SECONDS
        case Phase.DRAINING:
            return DRAINING_SECONDS if seconds_left == float("inf") else max(DRAINING_SECONDS, seconds_left)
        case Phase.COLLECTING_EVIDENCE:
            return EVIDENCE_SECONDS
        case Phase.BACKING_OFF:
            return delay
        case Phase.STOPPING:
            return policies.grace.total_seconds() + STOPPING_SECONDS + removal_seconds
        case Phase.RUNNING | Phase.ENDED:
            return None
