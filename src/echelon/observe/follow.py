"""A run from here to its end: the ranks' output as it comes, and what happens to the run as sentences."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from echelon.events import Event, Kind, parse_event
from echelon.observe.logs import LogTails, Tail
from echelon.observe.status import RunStatus, status_of
from echelon.run_dir import RunDir

POLL_SECONDS = 0.05
LIVENESS_SECONDS = 1.0


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

    def to_the_end(self) -> RunStatus:
        """Returns once the run has ended; all that the ranks wrote is out by then."""
        gc.enable()  # this may go on for days
        next_look = time.monotonic() + LIVENESS_SECONDS
        while not self._show_news():
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LIVENESS_SECONDS
                status = status_of(self._run_dir)
                if status.state.ended:
                    self._show_news()
                    self._write(self._logs.read(to_the_end=True))
                    return status
            time.sleep(POLL_SECONDS)
        return status_of(self._run_dir)

    def _show_news(self) -> bool:
        """True once the news is that the run has finished."""
        news = [event for event in _parsed(self._events.read()) if event.attempt >= self._attempt]
        finished = any(event.kind is Kind.FINISHED for event in news)
        self._write(self._logs.read(to_the_end=finished))
        for sentence in filter(None, map(sentence_of, news)):
            self._say(sentence)
        return finished


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
