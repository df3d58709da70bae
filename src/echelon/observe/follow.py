"""A run from here to its end: the ranks' output as it comes, and what happens to the run as sentences."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from echelon.events import Event, Kind, parse_event
from echelon.observe.echoes import Echoes
from echelon.observe.logs import LogTails, Tail
from echelon.observe.status import RunStatus, statuses
from echelon.run_dir import RunDir
from echelon.schedulers import Scheduler
from echelon.states import JobState

POLL_SECONDS = 0.05
SHARED_POLL_SECONDS = 0.5  # a file server has other clients too
FIRST_SECONDS = 10.0
FAR_SECONDS = 300 * 86400.0
SETTLE_SECONDS = 5.0  # what a node wrote last shows up on a shared file system within this


class Pace:
    """When to ask the scheduler again: its own pauses, which begin anew with whatever changes, though not as short as
    in the first moments: what changes all the time is no reason to ask all the time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._began = self._changed = time.monotonic()
        self._next = self._began + scheduler.pause(0.0)
        self.poll_seconds = POLL_SECONDS if scheduler.STARTS_HERE else SHARED_POLL_SECONDS

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._scheduler.pause(max(now - self._changed, min(now - self._began, FIRST_SECONDS)))
        return True

    def start_anew(self) -> None:
        self._changed = time.monotonic()


class Follower:
    """Knows what of one run it has already shown."""

    def __init__(
        self, run_dir: RunDir, *, attempt: int, write: Callable[[bytes], None], say: Callable[[str], None]
    ) -> None:
        self.run_dir = run_dir
        self.end: RunStatus | None = None
        self._attempt = attempt
        self._write = write
        self._say = say
        self._logs = LogTails(run_dir, attempt)
        self._echoes = Echoes()
        self._events = Tail(run_dir.events)
        self._told: RunStatus | None = None
        self._doubtful_since: float | None = None

    def show_news(self) -> bool:
        """True if the news is that the run has finished."""
        news = [event for event in _parsed(self._events.read()) if event.attempt >= self._attempt]
        finished = any(event.kind is Kind.FINISHED for event in news)
        if news:
            self._doubtful_since = None
        self._show_output(to_the_end=finished)
        for sentence in filter(None, map(sentence_of, news)):
            self._say(sentence)
        return finished

    def _show_output(self, *, to_the_end: bool) -> None:
        self._write(self._echoes.shortened(self._logs.read(to_the_end=to_the_end), to_the_end=to_the_end))

    def hear(self, status: RunStatus, settle_seconds: float) -> bool:
        """Takes the scheduler's word into account; true if something has changed."""
        changed = self._show_queue(status)
        if not status.state.ended:
            return changed
        if status.ended is None:  # the scheduler alone says so; the run's own word may be on its way
            self._doubtful_since = self._doubtful_since or time.monotonic()
            if time.monotonic() < self._doubtful_since + settle_seconds:
                return True
        self.show_news()
        self._show_output(to_the_end=True)
        self.end = status
        return True

    def _show_queue(self, status: RunStatus) -> bool:
        """Why the run waits and until when, once, and again when that changes."""
        now = time.time()
        if not is_news(self._told, status, now):
            return False
        self._told = status
        sentence = queue_sentence(status, now)
        if sentence or not status.state.ended:
            self._say(sentence or "it has its nodes, and starts")
        return True


def follow(followers: Sequence[Follower], scheduler: Scheduler) -> Iterator[Follower]:
    """Each follower once its run has ended; all that the ranks wrote is out by then. One question serves all runs."""
    gc.enable()  # this may go on for days
    pace = Pace(scheduler)
    settle_seconds = 0.0 if scheduler.STARTS_HERE else SETTLE_SECONDS
    left = [one for one in followers if one.end is None]
    while left:
        finished = [one for one in left if one.show_news()]
        asked = left if pace.is_due() else finished
        for one, status in zip(asked, statuses([one.run_dir for one in asked]), strict=True):
            if one.hear(status, settle_seconds):
                pace.start_anew()
        yield from (one for one in left if one.end is not None)
        left = [one for one in left if one.end is None]
        if left:
            time.sleep(pace.poll_seconds)


def queue_sentence(status: RunStatus, now: float) -> str:
    """Empty for a run that does not wait."""
    if status.state not in (JobState.QUEUED, JobState.REQUEUED):
        return ""
    parts = (status.state.value.lower(), status.reason, expected_sentence(status.expected_start, now))
    return ": ".join(filter(None, (parts[0], "; ".join(filter(None, parts[1:])))))


def is_news(told: RunStatus | None, status: RunStatus, now: float) -> bool:
    """Whether a run waits, for something else, or for a time that differs by more than a tenth of the wait."""
    before, after = (queue_sentence(one, now) if one is not None else "" for one in (told, status))
    if told is None or not before or not after or told.reason != status.reason or told.state is not status.state:
        return before != after
    if told.expected_start is None or status.expected_start is None:
        return before != after
    shift = abs(told.expected_start - status.expected_start)
    return before != after and shift > max(60.0, (told.expected_start - now) / 10)


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
