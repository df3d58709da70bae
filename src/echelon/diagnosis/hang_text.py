"""Phrases of the verdict on a hang. Pure."""

from __future__ import annotations

from echelon.diagnosis.activity import FILE_LOCKS, Activity, ActivityKind
from echelon.diagnosis.evidence import Collective, GroupStatus
from echelon.diagnosis.matching import Call, Mismatch, is_default
from echelon.diagnosis.ranks import format_ranks
from echelon.text import format_size

HASH_CHARS = 8
"""Names of some groups are hashes of 40 characters."""
MOST_SHAPES = 2
STOPPED = "stopped by a signal (SIGSTOP)"


def format_group(group: GroupStatus) -> str:
    """`the default group`, `group 'tp'` or `group 3`."""
    if is_default(group):
        return "the default group"
    if group.description and group.description != "undefined":
        return f"group '{group.description}'"
    return f"group {group.group[:HASH_CHARS]}"


def format_collective(collective: Collective, group: GroupStatus, *, size: bool = True) -> str:
    """`all_reduce #1204 of the default group (12 MiB float32)`."""
    amount = f"{format_size(collective.byte_count)} {', '.join(collective.dtypes)}"
    shown = f" ({amount})" if size and collective.byte_count else ""
    return f"{collective.operation} #{collective.sequence} of {format_group(group)}{shown}"


def format_mismatch(mismatch: Mismatch, subject: str) -> str:
    """`rank 2 on n1 called broadcast as #4 of the default group, ranks 0, 1 called all_reduce`.

    `subject` names the ranks of the rarest call, which comes first.
    """
    rare, *others = reversed(mismatch.calls)
    number = f"#{rare.collective.sequence} of {format_group(mismatch.group)}"
    if len({call.collective.operation for call in mismatch.calls}) > 1:
        calls = [f"{format_ranks(call.ranks)} called {call.collective.operation}" for call in others]
        return ", ".join([f"{subject} called {rare.collective.operation} as {number}", *calls])
    calls = [f"{format_ranks(call.ranks)} with {_format_tensors(call)}" for call in others]
    return ", ".join([f"{subject} called {rare.collective.operation} {number} with {_format_tensors(rare)}", *calls])


def _format_tensors(call: Call) -> str:
    """`256x256 float32`."""
    entry = call.collective
    shapes = ["x".join(map(str, shape)) or "scalar" for shape in entry.sizes[:MOST_SHAPES]]
    more = ["..."] if len(entry.sizes) > MOST_SHAPES else []
    return f"{' and '.join([*shapes, *more]) or 'no tensor'} {', '.join(entry.dtypes)}".rstrip()


def format_activity(activity: Activity, *, ranks: int, seconds: float) -> str:
    """What the culprits do, without the subject: `has been in dataset.py:88 (time.sleep) for 41 s`."""
    has = "has" if ranks == 1 else "have"
    during = f"for {seconds:.0f} s"
    place = activity.location or "an unknown place"
    match activity.kind:
        case ActivityKind.DATA_LOADER:
            return _format_worker(activity, has=has, place=place, during=during)
        case ActivityKind.FILE:
            return f"{has} been {_file_phrase(activity)}{_format_location(activity)} {during}"
        case ActivityKind.LOCK:
            return f"{has} waited for a lock at {place} {during}"
        case ActivityKind.EXIT:
            return f"{has} not exited for {seconds:.0f} s after the end of the script, in {place}"
        case ActivityKind.STOPPED:
            return f"{'is' if ranks == 1 else 'are'} {STOPPED}"
        case ActivityKind.UNKNOWN:
            return f"{has} no known stack"
        case ActivityKind.RUNNING:
            return f"{has} been running in {place} {during}"
        case _:
            return f"{has} been in {place} {during}"


def _format_worker(activity: Activity, *, has: str, place: str, during: str) -> str:
    if activity.worker is None:
        return f"{has} waited for a DataLoader worker{_format_location(activity)} {during}"
    if has == "has":
        workers, which = f"waits for a DataLoader worker (pid {activity.worker})", "is"
    else:
        workers, which = "wait for their DataLoader workers", "are"
    if activity.operation == "stopped":
        return f"{workers}, which {which} {STOPPED}"
    file = f" on {activity.path}" if activity.path else ""
    return f"{workers}, which {has} been in {place}{file} {during}"


def _file_phrase(activity: Activity) -> str:
    """`in read on /data/shard-7`."""
    if activity.operation in FILE_LOCKS and activity.path:
        return f"waiting for a lock on the file {activity.path}"
    call = activity.operation or "file I/O"
    return f"in {call} on {activity.path}" if activity.path else f"in uninterruptible {call}"


def _format_location(activity: Activity) -> str:
    return f" at {activity.location}" if activity.location else ""


def describe_activity(activity: Activity) -> str:
    """The text behind the ranks of a group: `waiting in all_reduce at train.py:61`."""
    match activity.kind:
        case ActivityKind.COLLECTIVE | ActivityKind.MESSAGE | ActivityKind.JOIN | ActivityKind.MAIN_FIRST:
            return f"waiting in {activity.operation}{_format_location(activity)}"
        case ActivityKind.DATA_LOADER if activity.worker is None:
            return f"waiting for a DataLoader worker{_format_location(activity)}"
        case ActivityKind.DATA_LOADER:
            return f"waiting for a DataLoader worker that is in {activity.location or 'an unknown place'}"
        case ActivityKind.FILE:
            return f"{_file_phrase(activity)}{_format_location(activity)}"
        case ActivityKind.LOCK:
            return f"waiting for a lock{_format_location(activity)}"
        case ActivityKind.EXIT:
            return f"exiting, in {activity.location or 'an unknown place'}"
        case ActivityKind.STOPPED:
            return STOPPED
        case ActivityKind.UNKNOWN:
            return "no stack"
        case ActivityKind.RUNNING:
            return f"running{_format_location(activity)}"
        case ActivityKind.OTHER:
            return f"in {activity.location or 'an unknown place'}"
