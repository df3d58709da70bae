"""The ranks that slow the others down, from the events of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from echelon.events import Event, Kind

NEW_RANKS = (Kind.SUBMITTED, Kind.STARTED, Kind.GENERATION)


def slow_sentences(events: Iterable[Event]) -> tuple[str, ...]:
    """One sentence for each slowness that has not ended. A new generation starts without any."""
    found: dict[frozenset[int], str] = {}
    for event in events:
        if event.kind in NEW_RANKS:
            found.clear()
        elif event.kind is Kind.SLOW:
            _apply_event(found, event)
    return tuple(found.values())


def _apply_event(found: dict[frozenset[int], str], event: Event) -> None:
    ranks, change = _parse_ranks(event.fields.get("ranks")), event.fields.get("change")
    for known in [known for known in found if change == "ended" and known <= ranks]:
        del found[known]
    if change == "chronic":
        found[ranks] = str(event.fields.get("text"))


def _parse_ranks(value: Any) -> frozenset[int]:
    return frozenset(rank for rank in value if isinstance(rank, int)) if isinstance(value, list) else frozenset()
