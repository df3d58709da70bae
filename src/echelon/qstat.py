"""What `qstat -f` prints of jobs, as JSON or as text, read into plain fields; and the moments and durations in them."""

from __future__ import annotations

import json
import re
import time
from typing import Any

_HEAD = re.compile(r"Job Id:\s*(\S+)")
_FIELD = re.compile(r"    (\S+) = ?(.*)")


def parse(text: str) -> dict[str, dict[str, str]]:
    """By job id, its attributes by name: `job_state`, `Resource_List.walltime`. Raises ValueError for broken JSON."""
    return _parse_json(text) if text.lstrip().startswith("{") else _parse_text(text)


def _parse_json(text: str) -> dict[str, dict[str, str]]:
    data = json.loads(text, strict=False)
    jobs = data.get("Jobs", {})
    if not isinstance(jobs, dict):
        raise ValueError("its Jobs are no table")
    return {name: dict(_flat("", fields)) for name, fields in jobs.items() if isinstance(fields, dict)}


def _flat(prefix: str, fields: dict[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            pairs += _flat(f"{prefix}{name}.", value)
        else:
            pairs.append((f"{prefix}{name}", str(value)))
    return pairs


def _parse_text(text: str) -> dict[str, dict[str, str]]:
    """A line that begins with a tab goes on with the one before it; of two fields of one name the first counts."""
    jobs: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in text.replace("\n\t", "").splitlines():
        head, field = _HEAD.match(line), _FIELD.fullmatch(line)
        if head:
            fields = jobs.setdefault(head.group(1), {})
        elif field:
            fields.setdefault(field.group(1), field.group(2))
    return jobs


def find(jobs: dict[str, dict[str, str]], job_id: str) -> dict[str, str] | None:
    """The number is what counts where there is no exact match."""
    if job_id in jobs:
        return jobs[job_id]
    return next((fields for name, fields in jobs.items() if number(name) == number(job_id)), None)


def number(job_id: str) -> str:
    """Without the server, which may be named in full or in short."""
    return job_id.partition(".")[0]


def seconds(text: str) -> int | None:
    """`1:30:00`, `90:00` or `5400`; None for anything else."""
    if not re.fullmatch(r"\d+(:\d+){0,2}", text):
        return None
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


def moment(text: str) -> float | None:
    """`Thu Jan 15 10:15:00 2026`, in this machine's time, as PBS prints it; or seconds since the epoch."""
    if text.isdecimal():
        return float(text)
    try:
        return time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None


def end_of(fields: dict[str, str]) -> float | None:
    """When its walltime is over; what is used of it is written down only now and then, so its start counts."""
    limit = seconds(fields.get("Resource_List.walltime", ""))
    start = moment(fields.get("stime", ""))
    return None if limit is None or start is None else start + limit
