"""What the events of a run tell those who go on with it, since a person last started or resumed it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from echelon.events import Event, Kind


def since_submitted(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        if event.kind is Kind.SUBMITTED:
            found.clear()
        else:
            found.append(event)
    return found


def requeues_so_far(events: Iterable[Event]) -> int:
    """Of those that were asked for."""
    return sum(
        event.kind is Kind.REQUEUED and bool(event.fields.get("counts", True)) for event in since_submitted(events)
    )


def hosts_lost(events: Iterable[Event]) -> tuple[str, ...]:
    """Those that fell silent, for the rest of the run: the next attempts had better not get them again."""
    named = (name for event in since_submitted(events) for name in event.fields.get("lost_hosts", ()))
    return tuple(dict.fromkeys(named))


def has_finished(events: Iterable[Event]) -> bool:
    return any(event.kind is Kind.FINISHED for event in since_submitted(events))
