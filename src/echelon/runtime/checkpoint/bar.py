"""How far training is, in one line of a terminal that rewrites itself; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from typing import TextIO

PERIOD_SECONDS = 0.2
WIDTH = 24


class Bar:
    def __init__(self, *, shown: bool, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.shown = shown and self._stream is not None and self._stream.isatty()
        self._next = 0.0
        self._last: tuple[int, float] | None = None
        self._rate = 0.0

    def show(self, step: int, saved: int | None, until: int | None) -> None:
        now = time.monotonic()
        if not self.shown or (now < self._next and step != until):
            return
        self._next = now + PERIOD_SECONDS
        if self._last is not None and now > self._last[1]:
            self._rate = (step - self._last[0]) / (now - self._last[1])
        self._last = (step, now)
        print(f"\r{line(step, saved, until, self._rate)}\x1b[K", end="", file=self._stream, flush=True)

    def close(self) -> None:
        if self.shown and self._last is not None:
            print(file=self._stream, flush=True)
        self.shown = False


def line(step: int, saved: int | None, until: int | None, rate: float) -> str:
    head = f"step {step}" if until is None else f"{_gauge(step / max(1, until))} step {step}/{until}"
    left = f", {_clock((until - step) / rate)} left" if until is not None and rate > 0 and until > step else ""
    return f"{head}  {rate:.1f}/s{left}" + ("" if saved is None else f"  saved {saved}")


def _gauge(share: float) -> str:
    full = round(WIDTH * min(1.0, max(0.0, share)))
    return f"[{'#' * full}{'.' * (WIDTH - full)}]"


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"
