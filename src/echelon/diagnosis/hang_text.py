"""The evidence of one hang, prepared for the rules that explain it, and the phrases of its verdict. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from echelon.diagnosis.activity import FILE_LOCKS, Activity, ActivityKind, classify
from echelon.diagnosis.evidence import Collective, GroupStatus, RankEvidence
from echelon.diagnosis.matching import Call, Mismatch, Wait, find_waits, is_default
from echelon.record import record
from echelon.text import format_ranks, format_ranks_with_host, format_size

HASH_CHARS = 8
"""Names of some groups are hashes of 40 characters."""
MOST_SHAPES = 2
STOPPED = "stopped by a signal (SIGSTOP)"


# Phrases


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


# The evidence of one hang, prepared for the rules that explain it


@record
class Case:
    ranks: Mapping[int, RankEvidence]
    activities: Mapping[int, Activity]
    waits: tuple[Wait, ...]
    finished: tuple[int, ...]
    idle_seconds: float

    @property
    def waiting(self) -> list[int]:
        return [rank for rank, activity in self.activities.items() if activity.waits_for_ranks]

    @property
    def held_up(self) -> list[int]:
        """Ranks that wait for no other rank."""
        return [rank for rank, activity in self.activities.items() if not activity.waits_for_ranks]

    def of_kind(self, kind: ActivityKind) -> list[int]:
        return [rank for rank, activity in self.activities.items() if activity.kind is kind]

    def named(self, ranks: Collection[int]) -> str:
        return format_ranks_with_host({rank: self.ranks[rank].host for rank in ranks})

    def seconds(self, rank: int) -> float:
        return self.ranks[rank].idle_seconds or self.idle_seconds

    def doing(self, culprits: Sequence[int]) -> str:
        """What the culprits do. If they do different things, what the first of them does."""
        number = len(culprits) if self._is_shared(culprits) else 1
        what = format_activity(self.activities[culprits[0]], ranks=number, seconds=self.seconds(culprits[0]))
        if self._is_shared(culprits):
            return f"{'it' if number == 1 else 'they'} {what}"
        return f"{format_ranks(culprits[:1])} {what}"

    def named_doing(self, culprits: Sequence[int]) -> str:
        """The same with the names of the culprits."""
        if not self._is_shared(culprits):
            return f"{self.named(culprits)} are not in a collective; {self.doing(culprits)}"
        activity, seconds = self.activities[culprits[0]], self.seconds(culprits[0])
        return f"{self.named(culprits)} {format_activity(activity, ranks=len(culprits), seconds=seconds)}"

    def _is_shared(self, culprits: Sequence[int]) -> bool:
        return len({describe_activity(self.activities[rank]) for rank in culprits}) == 1


def prepare_case(ranks: Sequence[RankEvidence], *, idle_seconds: float, finished: Collection[int]) -> Case:
    by_rank = {one.rank: one for one in sorted(ranks, key=lambda one: one.rank)}
    return Case(
        ranks=by_rank,
        activities={rank: classify(one) for rank, one in by_rank.items()},
        waits=find_waits(ranks),
        finished=tuple(sorted(finished)),
        idle_seconds=idle_seconds,
    )
