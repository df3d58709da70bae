"""May this process still commit? Not when the run has a newer attempt or generation: it was cut off, and replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from echelon.events import Event, Kind, parse_event
from echelon.run_dir import RunDir


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Which start of which run this process belongs to; `run` is None without echelon around it."""

    run: Path | None = None
    run_id: str = ""
    attempt: int = 0
    generation: int = 0

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Standing:
        run = environ.get("ECHELON_RUN_DIR")
        if not run:
            return cls()
        return cls(
            run=Path(run),
            run_id=environ.get("ECHELON_RUN_ID", ""),
            attempt=int(environ.get("ECHELON_ATTEMPT", "0")),
            generation=int(environ.get("ECHELON_GENERATION", "0")),
        )


def replaced_by(standing: Standing) -> str | None:
    """Who has taken our place, as a phrase; None while we are the newest."""
    if standing.run is None:
        return None
    run_dir = RunDir(standing.run)
    newest = max((attempt.number for attempt in run_dir.attempts()), default=0)
    return newer(standing, newest, _generations(run_dir.events))


def newer(standing: Standing, newest_attempt: int, events: Iterable[Event]) -> str | None:
    if newest_attempt > standing.attempt:
        return f"attempt {newest_attempt}"
    starts = [
        event.fields.get("generation", 0)
        for event in events
        if event.kind is Kind.GENERATION and event.attempt == standing.attempt
    ]
    newest = max(starts, default=0)
    return f"generation {newest}" if newest > standing.generation else None


def _generations(path: Path) -> Iterable[Event]:
    """Only lines that can be of that kind are parsed: a run of weeks has hundreds of thousands."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return [event for line in lines if '"generation"' in line and (event := parse_event(line)) is not None]
    except OSError:
        return []
