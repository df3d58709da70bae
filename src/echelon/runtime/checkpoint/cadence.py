"""When to save: every so many steps or so often by the clock, and never while an earlier save is under way.

All ranks hold the same Cadence and feed it the same things at the same steps, so all come to the same answer.
"""

from __future__ import annotations

from datetime import timedelta

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.agreement import Word


class Cadence:
    def __init__(self, every: int | timedelta | None, now: float) -> None:
        _check(every)
        self._steps = every if isinstance(every, int) else None
        self._seconds = every.total_seconds() if isinstance(every, timedelta) else None
        self._next_step, self._next_time = self._steps or 0, now + (self._seconds or 0)
        self._clock_struck = False
        self._believed_from = 0
        self.free = True
        """Known of all ranks: none has a save under way."""

    def begin(self, step: int, now: float) -> None:
        """Of a start, at the step it begins with; or of a save."""
        self._next_step = step - step % self._steps + self._steps if self._steps else 0
        self._next_time = now + (self._seconds or 0)
        self._clock_struck = False

    def started(self, step: int, now: float, rounds: int) -> None:
        """A save has begun; what was said in the first `rounds` rounds was said before it."""
        self.begin(step, now)
        self.free, self._believed_from = False, rounds

    def heard(self, joint: Word) -> None:
        if joint.round >= self._believed_from:
            self.free = self.free or not joint.busy
            self._clock_struck = self._clock_struck or joint.due

    def is_due(self, step: int) -> bool:
        return self._clock_struck or self.is_first_due(step) or (self._steps is not None and step > self._next_step)

    def next_step(self, step: int) -> float:
        """When to ask again, if nothing is heard before."""
        return self._next_step if self._steps is not None and step < self._next_step else float("inf")

    def is_first_due(self, step: int) -> bool:
        """At this very step: worth a question to all ranks where it is not known that none is busy."""
        return self._steps is not None and step == self._next_step

    def clock_says(self, now: float) -> bool:
        """This rank's own clock, to be agreed upon."""
        return self._seconds is not None and now >= self._next_time


def _check(every: int | timedelta | None) -> None:
    if every is None:
        return
    if every > timedelta(0) if isinstance(every, timedelta) else type(every) is int and every > 0:
        return
    raise ConfigError(
        f"every is {every!r}",
        origin="echelon.Checkpoint",
        hint="give a number of steps, a timedelta, or None to save only when told to",
    )
