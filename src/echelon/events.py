"""What happened to a run, one JSON line each: written by both sides, read by ls, status, logs and run."""

from __future__ import annotations

import enum
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""What a file system without locks answers."""


class Kind(str, enum.Enum):
    SUBMITTED = "submitted"
    STARTED = "started"
    RANK_READY = "rank_ready"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    NOTICE = "notice"
    FAULT = "fault"
    GENERATION = "generation"
    REQUEUED = "requeued"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: Kind
    time: float
    attempt: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        head = {"time": round(self.time, 3), "kind": self.kind.value, "attempt": self.attempt}
        return json.dumps({**head, **self.fields})


def parse_event(line: str) -> Event | None:
    """None for a torn line or a kind from a newer version: both are data, not crashes."""
    try:
        data = json.loads(line)
        kind = Kind(data.pop("kind"))
        return Event(kind=kind, time=float(data.pop("time")), attempt=int(data.pop("attempt", 0)), fields=data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def append_event(path: Path, kind: Kind, attempt: int, **fields: Any) -> None:
    """One write of one line, so that two writers never interleave; a line torn by a full disk spoils no other."""
    line = Event(kind=kind, time=time.time(), attempt=attempt, fields=fields).line() + "\n"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd)  # or the look at the last byte could fall into another writer's line
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        data = (("\n" if torn else "") + line).encode()
        if os.write(fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def read_events(path: Path) -> Iterator[Event]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        event = parse_event(line)
        if event is not None:
            yield event
