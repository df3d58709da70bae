"""When the notice is due and when time is up, for an attempt that began at a given moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echelon.job import Job
from echelon.node.situation import Event, NoticeDue, TimeIsUp


@dataclass
class Clock:
    end_at: float | None
    lead: float = 0.0
    """How long before the end the notice is due."""
    reserve: float = 0.0
    """How long before the scheduler ends us we do so ourselves."""
    noticed: bool = False
    over: bool = False

    @classmethod
    def of(cls, job: Job, began: float, reserve: float = 0.0) -> Clock:
        limit = job.resources.time_limit
        end = None if limit is None else began + limit.total_seconds() - reserve
        return cls(end, job.policies.notice.total_seconds(), reserve)

    def ends(self, moment: float, now: float) -> None:
        """The scheduler's own word, which counts for more than what was asked for. Of little, little is kept back."""
        self.reserve = min(self.reserve, max(0.0, moment - now) / (10 if self.end_at is None else 4))
        self.end_at = moment - self.reserve

    def due(self, now: float) -> Iterator[Event]:
        """Each event once."""
        if not self.noticed and self.end_at is not None and now >= self.end_at - self.lead:
            self.noticed = True
            yield NoticeDue()
        if not self.over and self.end_at is not None and now >= self.end_at:
            self.over = True
            yield TimeIsUp()

    def is_near(self, now: float, early: float) -> bool:
        """Whether the notice is due by itself within so many seconds."""
        return self.end_at is not None and not self.noticed and now >= self.end_at - self.lead - early

    def next(self) -> float:
        if self.end_at is None or self.over:
            return float("inf")
        return self.end_at if self.noticed else self.end_at - self.lead

    def seconds_left(self, now: float) -> float:
        return float("inf") if self.end_at is None else max(0.0, self.end_at - now)
