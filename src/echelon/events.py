"""Events of a run, one JSON line each, and facts about earlier attempts that follow from them."""

from __future__ import annotations

import enum
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from echelon.record import record
from echelon.untrusted import parse_json, read_regular

MAX_EVENT_BYTES = 256 << 20
LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""Errors of a file system without locks."""


class Kind(str, enum.Enum):
    SUBMITTED = "submitted"
    STARTED = "started"
    RANK_READY = "rank_ready"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    NOTICE = "notice"
    WARNING = "warning"
    SLOW = "slow"
    FAULT = "fault"
    GENERATION = "generation"
    REQUEUED = "requeued"
    FINISHED = "finished"


@record
class Event:
    kind: Kind
    time: float
    attempt: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        head = {"time": round(self.time, 3), "kind": self.kind.value, "attempt": self.attempt}
        return json.dumps({**head, **self.fields})


def parse_event(line: str) -> Event | None:
    """None for an incomplete line or a kind from a newer version. Neither may crash a reader."""
    try:
        data = parse_json(line)
        kind = Kind(data.pop("kind"))
        return Event(kind=kind, time=float(data.pop("time")), attempt=int(data.pop("attempt", 0)), fields=data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def append_event(path: Path, kind: Kind, attempt: int, **fields: Any) -> None:
    """Appends one line under a lock and usually in one write, so that two writers never interleave. Raises OSError.

    Starts a new line if a full disk left the last one incomplete.
    """
    line = Event(kind=kind, time=time.time(), attempt=attempt, fields=fields).line() + "\n"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd)  # otherwise the last byte could belong to the unfinished line of another writer
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        data = (("\n" if torn else "") + line).encode()
        while data:  # a write can be short; on a full disk the next one raises the reason
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in LOCKS_UNSUPPORTED:
            raise


def read_events(path: Path) -> Iterator[Event]:
    """Yields nothing if the file cannot be read or is larger than 256 MiB."""
    try:
        data = read_regular(path, MAX_EVENT_BYTES)
    except (OSError, ValueError):
        return
    for line in data.decode(errors="replace").splitlines():
        event = parse_event(line)
        if event is not None:
            yield event


def since_submitted(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        if event.kind is Kind.SUBMITTED:
            found.clear()
        else:
            found.append(event)
    return found


def count_requeues(events: Iterable[Event]) -> int:
    """Requeues since the last submission that count against --requeues."""
    return sum(
        event.kind is Kind.REQUEUED and bool(event.fields.get("counts", True)) for event in since_submitted(events)
    )


def collect_lost_hosts(events: Iterable[Event]) -> tuple[str, ...]:
    """Hosts that were lost. Later attempts of the run avoid them."""
    named = (name for event in since_submitted(events) for name in event.fields.get("lost_hosts", ()))
    return tuple(dict.fromkeys(named))


def has_finished(events: Iterable[Event]) -> bool:
    return any(event.kind is Kind.FINISHED for event in since_submitted(events))


def was_cancelled(events: Iterable[Event]) -> bool:
    """Whether a cancel ended the run since the last submission."""
    ends = [event for event in since_submitted(events) if event.kind is Kind.FINISHED]
    return bool(ends) and ends[-1].fields.get("outcome") == "cancelled"


def last_finished(events: Iterable[Event]) -> Event | None:
    ends = [event for event in since_submitted(events) if event.kind in (Kind.STARTED, Kind.FINISHED)]
    return ends[-1] if ends and ends[-1].kind is Kind.FINISHED else None
