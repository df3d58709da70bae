"""A run from here to its end: the ranks' output as it comes, and what happens to the run as sentences."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from echelon.events import Event, Kind, parse_event
from echelon.observe.logs import LogTails, Tail
from echelon.observe.status import RunStatus, status_of
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.schedulers import Scheduler
from echelon.states import JobState

POLL_SECONDS = 0.05
SHARED_POLL_SECONDS = 0.5  # a file server has other clients too
FAR_SECONDS = 300 * 86400.0
SETTLE_SECONDS = 5.0  # what a node wrote last shows up on a shared file system within this


class Pace:
    """When to ask the scheduler again: its own pauses, which begin anew with whatever changes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changed = time.monotonic()
        self._next = self._changed + scheduler.pause(0.0)
        self.poll_seconds = POLL_SECONDS if scheduler.STARTS_HERE else SHARED_POLL_SECONDS

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._scheduler.pause(now - self._changed)
        return True

    def start_anew(self) -> None:
        self._changed = time.monotonic()


class Follower:
    """Can be interrupted and taken up again: it knows what it has already shown."""

    def __init__(
        self, run_dir: RunDir, *, attempt: int, write: Callable[[bytes], None], say: Callable[[str], None]
    ) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self._write = write
        self._say = say
        self._logs = LogTails(run_dir, attempt)
        self._events = Tail(run_dir.events)
        self._scheduler: Scheduler = member("scheduler", run_dir.read_job().scheduler)
        self._pace = Pace(self._scheduler)
        self._queue_sentence = ""
        self._doubtful_since: float | None = None

    def to_the_end(self) -> RunStatus:
        """Returns once the run has ended; all that the ranks wrote is out by then."""
        gc.enable()  # this may go on for days
        while True:
            if self._show_news() or self._pace.is_due():
                status = status_of(self._run_dir)
                self._show_queue(status)
                if status.state.ended and self._is_sure(status):
                    self._show_news()
                    self._write(self._logs.read(to_the_end=True))
                    return status
            time.sleep(self._pace.poll_seconds)

    def _is_sure(self, status: RunStatus) -> bool:
        """An end that only the scheduler tells of: the run's own word on it may be on its way."""
        if status.ended is not None or self._scheduler.STARTS_HERE:
            return True
        self._pace.start_anew()
        self._doubtful_since = self._doubtful_since or time.monotonic()
        return time.monotonic() >= self._doubtful_since + SETTLE_SECONDS

    def _show_queue(self, status: RunStatus) -> None:
        """Why the run waits and until when, once, and again when that changes."""
        sentence = queue_sentence(status, time.time())
        if sentence != self._queue_sentence:
            self._queue_sentence = sentence
            self._pace.start_anew()
            if sentence:
                self._say(sentence)

    def _show_news(self) -> bool:
        """True once the news is that the run has finished."""
        news = [event for event in _parsed(self._events.read()) if event.attempt >= self._attempt]
        finished = any(event.kind is Kind.FINISHED for event in news)
        if news:
            self._doubtful_since = None
        self._write(self._logs.read(to_the_end=finished))
        for sentence in filter(None, map(sentence_of, news)):
            self._say(sentence)
        return finished


def queue_sentence(status: RunStatus, now: float) -> str:
    """Empty for a run that does not wait."""
    if status.state not in (JobState.QUEUED, JobState.REQUEUED):
        return ""
    parts = (status.state.value.lower(), status.reason, expected_sentence(status.expected_start, now))
    return ": ".join(filter(None, (parts[0], "; ".join(filter(None, parts[1:])))))


def expected_sentence(start: float | None, now: float) -> str:
    """To the minute; a start that the scheduler puts a year away only says that it knows none."""
    if start is None or not 0 < start - now < FAR_SECONDS:
        return ""
    today = time.localtime(start)[:3] == time.localtime(now)[:3]
    return f"expected to start {time.strftime('at %H:%M' if today else 'on %a %d %b at %H:%M', time.localtime(start))}"


def _parsed(data: bytes) -> list[Event]:
    lines = data.decode(errors="replace").splitlines()
    return [event for event in map(parse_event, lines) if event is not None]


def sentence_of(event: Event) -> str | None:
    """How an event is told to the person who watches; None for those not worth a line."""
    fields = event.fields
    match event.kind:
        case Kind.GENERATION if fields.get("generation", 0) > 0:
            hosts = ", ".join(fields.get("hosts", ()))
            return f"generation {fields['generation']} starts on {hosts}"
        case Kind.FAULT:
            return _fault_sentence(fields)
        case Kind.NOTICE:
            return f"notice: {fields.get('seconds_left')} s until the time limit"
        case Kind.REQUEUED:
            return f"{fields.get('reason')}: requeued, attempt {event.attempt + 1} follows"
        case _:
            return None


def _fault_sentence(fields: dict[str, Any]) -> str:
    left = fields.get("restarts_left", 0)
    return f"{fields.get('fault')} ({left} {'restart' if left == 1 else 'restarts'} left)"
