"""Durations as people type them: 90s, 15m, 2h, 1d12h, 1:30:00, or a bare number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
PARTS = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2}):(\d{2})")


def parse_duration(text: str) -> timedelta:
    """Raises ValueError for anything else, for zero and for less."""
    try:
        duration = _parsed(text.strip().lower())
    except OverflowError:
        duration = None
    if duration is None or duration <= timedelta(0):
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 2h or 1:30:00")
    return duration


def _parsed(text: str) -> timedelta | None:
    clock = CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return timedelta(seconds=float(text))
    if not re.fullmatch(f"({PARTS.pattern})+", text):
        return None
    return sum((timedelta(**{UNITS[unit]: float(n)}) for n, unit in PARTS.findall(text)), timedelta(0))


def format_duration(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"
