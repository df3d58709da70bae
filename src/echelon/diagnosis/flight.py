"""Parses the JSON of torch's flight recorder: how far a rank is in each process group. Pure.

Differences between backends, measured with torch 2.13:

- gloo never changes `state` from "scheduled". Its entries are finished if they are `retired`.
- gloo counts send and recv in `pg_status` but not in `collective_seq_id`, and does not record them. `pg_status` is
  therefore not comparable between ranks, and is used only for a group without entries.
- gloo has one entry with an empty name in `pg_config`, so the members of a group are unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from echelon.diagnosis.evidence import Collective, GroupStatus
from echelon.record import record
from echelon.untrusted import clean_for_terminal, parse_json

MOST_ENTRIES = 20
"""Entries that are kept of each group, the newest."""
ENTRIES_BEFORE_PENDING = 5
MOST_GROUPS = 32
MOST_MEMBERS = 65_536
MOST_TENSORS = 8
"""Shapes that are kept of one collective."""
MOST_DIMENSIONS = 16
MOST_NAME = 100
DEFAULT_GROUP = "0"
DEFAULT_DESCRIPTION = "default_pg"
BACKEND = re.compile(r"^\w+:")
SIZED_BY_OUTPUT = ("scatter", "reduce_scatter", "_reduce_scatter")
"""The inputs of these exist on one rank only, or are lists."""
DTYPES = {
    "Float": ("float32", 4),
    "Double": ("float64", 8),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8),
    "Int": ("int32", 4),
    "Short": ("int16", 2),
    "Char": ("int8", 1),
    "Byte": ("uint8", 1),
    "Bool": ("bool", 1),
    "ComplexFloat": ("complex64", 8),
    "ComplexDouble": ("complex128", 16),
}


@record
class FlightRecord:
    groups: tuple[GroupStatus, ...] = ()
    collectives: tuple[Collective, ...] = ()
    """The newest of each group, oldest first."""


def parse_flight(data: bytes | str) -> FlightRecord | None:
    """None if the data is not a dump of a flight recorder. Parts of an unknown form are left out."""
    try:
        dump = parse_json(data)
    except ValueError:
        return None
    if not isinstance(dump, dict) or not {"version", "entries", "pg_status"} & set(dump):
        return None
    entries = [_parse_collective(entry) for entry in _only_dicts(dump.get("entries"))]
    found = _by_group(entries)
    groups = _group_statuses(found, _group_descriptions(dump), _group_members(dump.get("pg_config")))
    groups += _default_without_entries(dump, found)
    kept = groups[-MOST_GROUPS:]
    newest = [one for group in kept for one in _entries_to_keep(found.get(group.group, []))]
    return FlightRecord(groups=tuple(kept), collectives=tuple(newest))


def _only_dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _parse_number(value: Any) -> int:
    """A number, also as text. 0 if it is neither."""
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def _parse_text(value: Any) -> str:
    return clean_for_terminal(value, most=MOST_NAME) if isinstance(value, str) else ""


def _group_of(entry: dict[str, Any]) -> tuple[str, str]:
    """Name and description."""
    value = entry.get("process_group")
    if isinstance(value, list) and len(value) == 2:
        return _parse_text(value[0]), _parse_text(value[1])
    return str(_parse_number(entry.get("pg_id"))), ""


def _parse_collective(entry: dict[str, Any]) -> Collective:
    operation = BACKEND.sub("", _parse_text(entry.get("profiling_name")))
    side = "output" if operation.startswith(SIZED_BY_OUTPUT) else "input"
    shapes, dtypes = _parse_shapes(entry.get(f"{side}_sizes")), _parse_dtypes(entry.get(f"{side}_dtypes"))
    is_p2p = entry.get("is_p2p") is True
    return Collective(
        group=_group_of(entry)[0],
        sequence=_parse_number(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id")),
        operation=operation,
        sizes=shapes[:MOST_TENSORS],
        dtypes=tuple(dict.fromkeys(name for name, _ in dtypes)),
        byte_count=_byte_count(shapes, [size for _, size in dtypes]),
        is_p2p=is_p2p,
        pending=entry.get("retired") is not True and entry.get("state") != "completed",
    )


def _parse_shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        return ()
    return tuple(tuple(map(_parse_number, shape[:MOST_DIMENSIONS])) for shape in value if isinstance(shape, list))


def _parse_dtypes(value: Any) -> list[tuple[str, int]]:
    names = [_parse_text(name) for name in value] if isinstance(value, list) else []
    return [DTYPES.get(name, (name.lower(), 1)) for name in names]


def _byte_count(shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> int:
    """gloo gives one dtype for a list of tensors."""
    last = sizes[-1] if sizes else 0
    padded = [*sizes, *[last] * (len(shapes) - len(sizes))]
    return sum(math.prod(shape) * size for shape, size in zip(shapes, padded, strict=False))


def _by_group(entries: Sequence[Collective]) -> dict[str, list[Collective]]:
    found: dict[str, list[Collective]] = {}
    for entry in entries:
        found.setdefault(entry.group, []).append(entry)
    return found


def _group_descriptions(dump: dict[str, Any]) -> dict[str, str]:
    return dict(_group_of(entry) for entry in _only_dicts(dump.get("entries")))


def _group_members(config: Any) -> dict[str, tuple[int, ...]]:
    """The members of each group by its name. Their list is a text: "[0, 1]"."""
    if not isinstance(config, dict):
        return {}
    return {
        _parse_text(name): _parse_members(value.get("ranks"))
        for name, value in config.items()
        if isinstance(value, dict)
    }


def _parse_members(value: Any) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", value[:MOST_MEMBERS]) if isinstance(value, str) else []
    return tuple(int(number[:9]) for number in numbers)


def _group_statuses(
    found: Mapping[str, Sequence[Collective]], descriptions: Mapping[str, str], members: Mapping[str, tuple[int, ...]]
) -> list[GroupStatus]:
    return [
        GroupStatus(
            group=name,
            description=descriptions.get(name, ""),
            last_enqueued=max((one.sequence for one in entries if not one.is_p2p), default=0),
            last_completed=_last_completed([one for one in entries if not one.is_p2p]),
            ranks=members.get(name, ()),
        )
        for name, entries in found.items()
    ]


def _last_completed(entries: Sequence[Collective]) -> int:
    """The newest collective before the first pending one."""
    pending = [one.sequence for one in entries if one.pending]
    return max(0, min(pending) - 1) if pending else max((one.sequence for one in entries), default=0)


def _default_without_entries(dump: dict[str, Any], found: Mapping[str, object]) -> list[GroupStatus]:
    """The default group, if other groups have displaced all its entries. Only its number is the same on all ranks."""
    status = dump.get("pg_status")
    own = status.get(DEFAULT_GROUP) if isinstance(status, dict) else None
    if DEFAULT_GROUP in found or not isinstance(own, dict):
        return []
    enqueued = _parse_number(own.get("last_enqueued_collective"))
    completed = _parse_number(own.get("last_completed_collective"))
    return [
        GroupStatus(
            group=DEFAULT_GROUP, description=DEFAULT_DESCRIPTION, last_enqueued=enqueued, last_completed=completed
        )
    ]


def _entries_to_keep(entries: Sequence[Collective]) -> Sequence[Collective]:
    """The newest entries, or those around the first pending one: a GPU may have hundreds of pending ones behind it."""
    pending = next((index for index, one in enumerate(entries) if one.pending), len(entries))
    first = max(0, min(len(entries) - MOST_ENTRIES, pending - ENTRIES_BEFORE_PENDING))
    return entries[first : first + MOST_ENTRIES]
