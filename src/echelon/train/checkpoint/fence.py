"""Whether this process may still commit: not if the run has a newer attempt or generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from echelon.events import Event, Kind, parse_event
from echelon.placement import REJECTED_CHECKPOINT
from echelon.run_dir import RunDir


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The run, attempt and generation of this process. `run` is None if echelon did not start it."""

    run: Path | None = None
    run_id: str = ""
    attempt: int = 0
    generation: int = 0
    rejected_checkpoint: str = ""
    """The name of a checkpoint to load only if no other one is intact."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> RunContext:
        run = environ.get("ECHELON_RUN_DIR")
        if not run:
            return cls()
        return cls(
            run=Path(run),
            run_id=environ.get("ECHELON_RUN_ID", ""),
            attempt=int(environ.get("ECHELON_ATTEMPT", "0")),
            generation=int(environ.get("ECHELON_GENERATION", "0")),
            rejected_checkpoint=environ.get(REJECTED_CHECKPOINT, ""),
        )


def find_newer_start(run_context: RunContext) -> str | None:
    """The newer start that has replaced this process, such as "attempt 2". None if this process is of the newest start.

    Reads the run directory.
    """
    if run_context.run is None:
        return None
    run_dir = RunDir(run_context.run)
    newest = max((attempt.number for attempt in run_dir.attempts()), default=0)
    return newer_start(run_context, newest, _generation_events(run_dir.events))


def newer_start(run_context: RunContext, newest_attempt: int, events: Iterable[Event]) -> str | None:
    """The start in `events` or `newest_attempt` that is newer than this process, such as "generation 1"; or None."""
    if newest_attempt > run_context.attempt:
        return f"attempt {newest_attempt}"
    starts = [
        event.fields.get("generation", 0)
        for event in events
        if event.kind is Kind.GENERATION and event.attempt == run_context.attempt
    ]
    newest = max(starts, default=0)
    return f"generation {newest}" if newest > run_context.generation else None


def _generation_events(path: Path) -> Iterable[Event]:
    """The generation events. Only lines that contain "generation" are parsed: the file of a run of several weeks has
    hundreds of thousands of lines."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return [event for line in lines if '"generation"' in line and (event := parse_event(line)) is not None]
    except OSError:
        return []
