"""How a rank spends its steps, from its step times and its flight recorder. Pure.

Measured with torch 2.13: for gloo the flight recorder has the time at which a rank called each collective and no time
at which it ended. A rank that calls a collective late makes the others wait, so arrivals are enough. With NCCL the
host calls collectives ahead of the GPU, so that its arrivals say nothing; they are left out.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from echelon.record import record
from echelon.untrusted import parse_json

LEAST_STEPS = 4
DROPPED_SHARE = 0.1
"""The slowest steps are left out: saves, logging, the first step of an epoch."""
MOST_ARRIVALS = 32
OWN_GROUP = "echelon"
"""The description of the group for echelon's own collectives. Ranks do not wait for them."""
HOST_BACKENDS = ("gloo:", "mpi:")
NANOSECONDS = 1e9


@record
class Pace:
    """The mean of a rank's last steps, in seconds."""

    step: int
    """The last one."""
    steps: int
    seconds: float
    input_seconds: float | None = None
    """None if the script reads its input outside of checkpoint.steps."""
    arrivals: tuple[float, ...] | None = None
    """When the rank called each collective, since the begin of the step. None if unknown."""
    pattern: str = ""
    """Equal on ranks that call the same collectives in each step."""


@record
class StepMark:
    """When a rank took a step, in nanoseconds since the epoch."""

    step: int
    began: int
    ended: int
    input_ns: int
    """Negative if unknown."""


@record
class Call:
    """A collective, as the flight recorder of one rank has it."""

    created: int
    name: str
    pending: bool


@record
class CallRecord:
    calls: tuple[Call, ...] = ()
    """Oldest first."""
    group_timeout: float | None = None
    is_full: bool = True
    """False if the record lacks older calls."""

    @property
    def pending_since(self) -> int | None:
        """When the oldest pending collective was called, in nanoseconds since the epoch; None if none is pending."""
        return min((call.created for call in self.calls if call.pending), default=None)


def parse_calls(data: bytes) -> CallRecord | None:
    """The collectives of a flight recorder's JSON, without echelon's own; None if it is something else."""
    try:
        dump = parse_json(data)
    except ValueError:
        return None
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list):
        return None
    own = [entry for entry in entries if isinstance(entry, dict) and not _is_left_out(entry)]
    calls = sorted((_parse_call(entry) for entry in own), key=lambda call: call.created)
    timeouts = [_parse_number(entry.get("timeout_ms")) for entry in own[-1:]]
    first = min((_parse_number(one.get("record_id")) for one in entries if isinstance(one, dict)), default=0)
    return CallRecord(
        calls=tuple(calls), group_timeout=timeouts[0] / 1000 if any(timeouts) else None, is_full=first == 0
    )


def _is_left_out(entry: Mapping[str, Any]) -> bool:
    group = entry.get("process_group")
    return entry.get("is_p2p") is True or (isinstance(group, list) and OWN_GROUP in group[1:])


def _parse_call(entry: Mapping[str, Any]) -> Call:
    pending = entry.get("retired") is not True and entry.get("state") != "completed"
    return Call(
        created=_parse_number(entry.get("time_created_ns")),
        name=str(entry.get("profiling_name"))[:100],
        pending=pending,
    )


def _parse_number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0


def measure_pace(marks: Sequence[StepMark], record: CallRecord | None) -> Pace | None:
    """The pace over these steps; None if they are too few. Without a record, arrivals are unknown."""
    calls = None if record is None or not _has_host_times(record) else record.calls
    oldest = record.calls[0].created if record is not None and record.calls and not record.is_full else 0
    split = {mark.step: _calls_between(calls or (), mark) for mark in marks if mark.began >= oldest}
    names = Counter(tuple(call.name for call in found) for found in split.values())
    usual = names.most_common(1)[0][0] if names else ()
    kept = [mark for mark in marks if mark.step in split and tuple(one.name for one in split[mark.step]) == usual]
    kept = sorted(kept, key=lambda mark: mark.ended - mark.began)[: len(kept) - _count_to_drop(len(kept))]
    if len(kept) < LEAST_STEPS:
        return None
    arrivals = _mean_arrivals(kept, split, len(usual)) if calls is not None else None
    return Pace(
        step=marks[-1].step,
        steps=len(kept),
        seconds=mean([mark.ended - mark.began for mark in kept]) / NANOSECONDS,
        input_seconds=_mean_input(kept),
        arrivals=None if arrivals is None else arrivals[-MOST_ARRIVALS:],
        pattern=f"{len(usual)}-{zlib.crc32(repr(usual).encode()):08x}" if calls is not None else "",
    )


def _has_host_times(record: CallRecord) -> bool:
    return all(call.name.startswith(HOST_BACKENDS) for call in record.calls)


def _calls_between(calls: Sequence[Call], mark: StepMark) -> list[Call]:
    return [call for call in calls if mark.began <= call.created < mark.ended]


def _count_to_drop(count: int) -> int:
    return max(1, round(count * DROPPED_SHARE)) if count > LEAST_STEPS else 0


def _mean_arrivals(marks: Sequence[StepMark], split: Mapping[int, Sequence[Call]], count: int) -> tuple[float, ...]:
    return tuple(
        mean([split[mark.step][index].created - mark.began for mark in marks]) / NANOSECONDS for index in range(count)
    )


def _mean_input(marks: Sequence[StepMark]) -> float | None:
    if any(mark.input_ns < 0 for mark in marks):
        return None
    return mean([mark.input_ns for mark in marks]) / NANOSECONDS


def mean(values: Sequence[float]) -> float:
    """The module statistics takes as long to import as ten of ours."""
    return sum(values) / len(values)


def median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else mean(ordered[half - 1 : half + 1])
