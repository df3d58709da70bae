"""When the notice is due and when time is up, for an attempt that began at a given moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echelon.job import Job
from echelon.node.situation import Event, NoticeDue, TimeIsUp


@dataclass
class Clock:
    notice_at: float | None
    end_at: float | None

    @classmethod
    def of(cls, job: Job, began: float) -> Clock:
        limit = job.resources.time_limit
        if limit is None:
            return cls(None, None)
        end = began + limit.total_seconds()
        return cls(max(began, end - job.policies.notice.total_seconds()), end)

    def due(self, now: float) -> Iterator[Event]:
        """Each event once."""
        if self.notice_at is not None and now >= self.notice_at:
            self.notice_at = None
            yield NoticeDue()
        if self.end_at is not None and now >= self.end_at:
            self.end_at = None
            yield TimeIsUp()

    def next(self) -> float:
        return min((moment for moment in (self.notice_at, self.end_at) if moment is not None), default=float("inf"))

    def seconds_left(self, now: float) -> float:
        return float("inf") if self.end_at is None else max(0.0, self.end_at - now)
