"""Follows a run to its end: the ranks' output and the run's events as sentences."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.backends import Backend
from echelon.errors import ConfigError
from echelon.events import Event, Kind, parse_event
from echelon.observe.logs import LogTails, Tail
from echelon.observe.status import RunStatus, statuses
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.wire.faults import PEER_EXIT_ERRORS

# torch's excepthook prints this format in a rank with a process group, after our tag: `[3] [rank3]: ...`
TRACEBACK_LINE = re.compile(rb"(?P<tag>\[ *(?P<rank>\d+)\] )\[rank(?P=rank)\]: ?(?P<text>.*)", re.DOTALL)
TRACEBACK_START = b"Traceback (most recent call last):"
MAX_TRACEBACK_LINES = 2000  # a longer traceback is not held back any further


class TracebackCollapser:
    """Holds back each traceback until its last line, which names the exception."""

    def __init__(self) -> None:
        self._held: dict[bytes, list[bytes]] = {}

    def collapse(self, data: bytes, *, to_the_end: bool = False) -> bytes:
        shown = b"".join(map(self._take_line, data.splitlines(keepends=True)))
        return shown + self._release_all() if to_the_end else shown

    def _take_line(self, line: bytes) -> bytes:
        found = TRACEBACK_LINE.fullmatch(line)
        if found is None:
            return line
        rank, text = found["rank"], found["text"]
        if text.strip() == TRACEBACK_START:
            before = b"".join(self._held.pop(rank, ()))
            self._held[rank] = [line]
            return before
        if rank not in self._held:
            return line
        held = self._held[rank]
        held.append(line)
        if text.startswith((b" ", b"\n")) and len(held) < MAX_TRACEBACK_LINES:
            return b""
        del self._held[rank]
        return line if PEER_EXIT_ERRORS.search(text.decode(errors="replace")) else b"".join(held)

    def _release_all(self) -> bytes:
        rest = b"".join(line for held in self._held.values() for line in held)
        self._held.clear()
        return rest


POLL_SECONDS = 0.05
SHARED_POLL_SECONDS = 0.5  # limits the load on a file server
FIRST_SECONDS = 10.0
UNKNOWN_START_SECONDS = 300 * 86400.0
SETTLE_SECONDS = 5.0  # the delay after which a last write is visible on a shared file system


class QueryTimer:
    """Decides when to query the scheduler again, by the scheduler's own pauses, which grow with time.

    After each change they start from short ones, but not from those of the first 10 s: a run that changes
    all the time must not cause queries all the time.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._began = self._changed = time.monotonic()
        self._next = self._began + backend.query_interval(0.0)
        self.poll_seconds = POLL_SECONDS if backend.runs_script_here else SHARED_POLL_SECONDS

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._backend.query_interval(max(now - self._changed, min(now - self._began, FIRST_SECONDS)))
        return True

    def restart(self) -> None:
        self._changed = time.monotonic()


class FollowedRun(RunDir):
    """A followed run. Its job and its native id stay available after its directory disappears."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._description: dict[str, Any] | None = None
        self._native_id = ""

    def read_description(self) -> dict[str, Any]:
        try:
            self._description = super().read_description()
        except ConfigError:
            if self._description is None or not self.is_gone():
                raise
        return self._description

    def read_native_id(self) -> str:
        self._native_id = super().read_native_id() or self._native_id
        return self._native_id

    def is_gone(self) -> bool:
        return not os.path.lexists(self.path)


class Follower:
    """Shows the output and the events of one run, each of them once."""

    def __init__(
        self, run_dir: RunDir, *, attempt: int, write: Callable[[bytes], None], say: Callable[[str], None]
    ) -> None:
        self.run_dir = FollowedRun(run_dir.path)
        self._reported_gone = False
        self.end: RunStatus | None = None
        self.warnings: set[str] = set()
        """Warnings that were shown."""
        self._attempt = attempt
        self._write = write
        self._say = say
        self._logs = LogTails(run_dir, attempt)
        self._collapser = TracebackCollapser()
        self._events = Tail(run_dir.events)
        self._shown_status: RunStatus | None = None
        self._end_seen_at: float | None = None

    def show_new_output(self) -> bool:
        """Shows new output and events. Returns true if the run has finished."""
        if not self._reported_gone and self.run_dir.is_gone():
            self._reported_gone = True
            self._say(f"{self.run_dir.path} was removed, so no output can be shown; waiting for the run to end")
        news = [event for event in _parse_events(self._events.read()) if event.attempt >= self._attempt]
        finished = any(event.kind is Kind.FINISHED for event in news)
        if news:
            self._end_seen_at = None
        self._show_output(to_the_end=finished)
        for sentence in filter(None, map(event_sentence, news)):
            self._say(sentence)
        self.warnings |= {str(event.fields.get("text")) for event in news if event.kind in (Kind.WARNING, Kind.SLOW)}
        return finished

    def _show_output(self, *, to_the_end: bool) -> None:
        while True:
            data = self._logs.read(to_the_end=to_the_end)
            self._write(self._collapser.collapse(data, to_the_end=to_the_end and not data))
            if not (to_the_end and data):
                return

    def apply_status(self, status: RunStatus, settle_seconds: float) -> bool:
        """Handles a status query's result. Returns true if something has changed."""
        changed = self._show_queue(status)
        if not status.state.ended:
            return changed
        if self._reported_gone and status.state is JobState.LOST:
            status = replace(status, reason="the run has ended; its directory was removed, so its exit code is unknown")
        if status.ended is None:  # only the scheduler reports the end; the run's own event may not be visible yet
            self._end_seen_at = self._end_seen_at or time.monotonic()
            if time.monotonic() < self._end_seen_at + settle_seconds:
                return True
        self.show_new_output()
        self._show_output(to_the_end=True)
        self.end = status
        return True

    def _show_queue(self, status: RunStatus) -> bool:
        """Shows why the run waits and its expected start, and again after each change."""
        now = time.time()
        if not queue_changed(self._shown_status, status, now):
            return False
        self._shown_status = status
        sentence = queue_sentence(status, now)
        if sentence or not status.state.ended:
            self._say(sentence or "nodes allocated, starting")
        return True


def follow(followers: Sequence[Follower], backend: Backend) -> Iterator[Follower]:
    """Yields each follower after its run has ended and all output is shown. One query covers all runs."""
    gc.enable()  # off since __main__; following may take days
    pace = QueryTimer(backend)
    settle_seconds = 0.0 if backend.runs_script_here else SETTLE_SECONDS
    left = [one for one in followers if one.end is None]
    while left:
        finished = [one for one in left if one.show_new_output()]
        asked = left if pace.is_due() else finished
        for one, status in zip(asked, statuses([one.run_dir for one in asked]), strict=True):
            if one.apply_status(status, settle_seconds):
                pace.restart()
        yield from (one for one in left if one.end is not None)
        left = [one for one in left if one.end is None]
        if left:
            time.sleep(pace.poll_seconds)


def queue_sentence(status: RunStatus, now: float) -> str:
    """Empty for a run that is not queued."""
    if status.state not in (JobState.QUEUED, JobState.REQUEUED):
        return ""
    parts = (status.state.value.lower(), status.reason, expected_sentence(status.expected_start, now))
    return ": ".join(filter(None, (parts[0], "; ".join(filter(None, parts[1:])))))


def queue_changed(shown: RunStatus | None, status: RunStatus, now: float) -> bool:
    """Whether to show the queue state again: it or its reason has changed, or the expected start has shifted.

    A shift counts from a minute, and from a tenth of the remaining wait.
    """
    before, after = (queue_sentence(one, now) if one is not None else "" for one in (shown, status))
    if shown is None or not before or not after or shown.reason != status.reason or shown.state is not status.state:
        return before != after
    if shown.expected_start is None or status.expected_start is None:
        return before != after
    shift = abs(shown.expected_start - status.expected_start)
    return before != after and shift > max(60.0, (shown.expected_start - now) / 10)


def expected_sentence(start: float | None, now: float) -> str:
    """To the minute. Empty for a start a year away, which a scheduler reports if it does not know the start."""
    if start is None or not 0 < start - now < UNKNOWN_START_SECONDS:
        return ""
    today = time.localtime(start)[:3] == time.localtime(now)[:3]
    return f"expected to start {time.strftime('at %H:%M' if today else 'on %a %d %b at %H:%M', time.localtime(start))}"


def _parse_events(data: bytes) -> list[Event]:
    lines = data.decode(errors="replace").splitlines()
    return [event for event in map(parse_event, lines) if event is not None]


def event_sentence(event: Event) -> str | None:
    """The line that is shown for an event; None for events that are not shown."""
    fields = event.fields
    match event.kind:
        case Kind.GENERATION if fields.get("generation", 0) > 0:
            hosts = ", ".join(fields.get("hosts", ()))
            return f"generation {fields['generation']} starts on {hosts}"
        case Kind.FAULT:
            return _fault_sentence(fields)
        case Kind.NOTICE:
            return f"notice: {fields.get('seconds_left')} s until the time limit"
        case Kind.WARNING:
            return f"warning: {fields.get('text')}"
        case Kind.SLOW if fields.get("change") in ("chronic", "ended"):
            return f"{'warning: ' if fields['change'] == 'chronic' else ''}{fields.get('text')}"
        case Kind.REQUEUED:
            return f"{fields.get('reason')}: requeued, attempt {event.attempt + 1} follows"
        case _:
            return None


def _fault_sentence(fields: dict[str, Any]) -> str:
    left = fields.get("restarts_left", 0)
    return f"{fields.get('fault')} ({left} {'restart' if left == 1 else 'restarts'} left)"
