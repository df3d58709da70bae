"""Compares the flight recorders of all ranks: which rank did not reach a collective, which called another one. Pure.

torch has an analyzer of its own (`torch.distributed.flight_recorder`). It is not used here because the supervisor has
no torch, and because it fails on the recordings of gloo, which do not contain the members of a group. A test checks
that both name the same ranks on recordings that it can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from echelon.diagnosis.evidence import Collective, GroupStatus, RankEvidence
from echelon.diagnosis.flight import DEFAULT_DESCRIPTION, DEFAULT_GROUP
from echelon.record import record

P2P = re.compile(r"^(?P<kind>send|recv) (?P<own>\d+)(?:->|<-)(?P<peer>\d+)$")
UNEQUAL = ("all_to_all", "alltoall", "coalesced", "all_gather_v", "reduce_scatter_v")
"""Operations whose shapes may differ between ranks."""
GroupKey = tuple[str, tuple[int, ...]]
"""Name and members. Groups that were split from one group may share a name."""


@record
class Wait:
    """A collective that some ranks have called and that does not complete."""

    group: GroupStatus
    collective: Collective
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    """Members that have not called it."""


@record
class Call:
    collective: Collective
    ranks: tuple[int, ...]


@record
class Mismatch:
    """Different calls with the same number of one group."""

    group: GroupStatus
    calls: tuple[Call, ...]
    """The most common one first."""


@record
class MessageWait:
    """A send or recv that does not complete."""

    rank: int
    peer: int
    collective: Collective
    is_matched: bool
    """The peer has called the counterpart."""


def is_default(group: GroupStatus) -> bool:
    return group.description == DEFAULT_DESCRIPTION or group.group == DEFAULT_GROUP


def find_waits(ranks: Sequence[RankEvidence]) -> tuple[Wait, ...]:
    """The first pending collective of each group. The one with the most waiting ranks comes first."""
    found = [
        wait for statuses in _statuses_by_group(ranks).values() if (wait := _find_wait(statuses, ranks)) is not None
    ]
    return tuple(sorted(found, key=lambda wait: (-len(wait.waiting), not wait.missing)))


def find_mismatch(ranks: Sequence[RankEvidence]) -> Mismatch | None:
    """The first pending collective that the ranks of a group called with another operation, shape or dtype."""
    for wait in find_waits(ranks):
        members = set(_statuses_by_group(ranks)[_group_key(wait.group)])
        calls = _calls_of_members([one for one in ranks if one.rank in members], wait.collective)
        if len(calls) > 1:
            return Mismatch(group=wait.group, calls=calls)
    return None


def find_message_waits(ranks: Sequence[RankEvidence]) -> tuple[MessageWait, ...]:
    """Pending sends and receives. gloo does not record them."""
    by_rank = {one.rank: one for one in ranks}
    found = []
    for one in ranks:
        members = {status.group: status.ranks for status in one.groups}
        for entry in one.collectives:
            parsed = P2P.match(entry.operation) if entry.is_p2p and entry.pending else None
            if parsed is not None:
                peer = _global_rank(int(parsed["peer"]), members.get(entry.group, ()))
                matched = _has_counterpart(parsed, entry, by_rank.get(peer))
                found.append(MessageWait(rank=one.rank, peer=peer, collective=entry, is_matched=matched))
    return tuple(found)


def last_common(ranks: Sequence[RankEvidence]) -> tuple[GroupStatus, Collective] | None:
    """The newest collective that all ranks have completed, and its group. None if they share no group, or if a
    collective is pending."""
    shared = [statuses for statuses in _statuses_by_group(ranks).values() if len(statuses) == len(ranks)]
    if not shared or find_waits(ranks):
        return None
    oldest = min(shared[0].values(), key=lambda status: status.last_completed)
    entry = _last_completed_entry(ranks, oldest)
    return None if entry is None else (oldest, entry)


def first_pending(one: RankEvidence) -> tuple[GroupStatus, Collective] | None:
    """The collective in which a rank waits, and its group."""
    for status in one.groups:
        entry = _first_pending(one, status.group)
        if entry is not None:
            return status, entry
    return None


def _statuses_by_group(ranks: Iterable[RankEvidence]) -> dict[GroupKey, dict[int, GroupStatus]]:
    """The statuses of each group by rank. Every rank with a flight recorder is a member of the default group."""
    found: dict[GroupKey, dict[int, GroupStatus]] = {}
    with_flight = [one for one in ranks if one.has_flight]
    for one in with_flight:
        for status in one.groups:
            found.setdefault(_group_key(status), {})[one.rank] = status
    for statuses in found.values():
        known = next(iter(statuses.values()))
        for one in with_flight:
            if one.rank not in statuses and (is_default(known) or one.rank in known.ranks):
                statuses[one.rank] = GroupStatus(group=known.group, description=known.description, ranks=known.ranks)
    return found


def _group_key(status: GroupStatus) -> GroupKey:
    return (status.group, () if is_default(status) else status.ranks)


def _find_wait(statuses: Mapping[int, GroupStatus], ranks: Sequence[RankEvidence]) -> Wait | None:
    known = next(iter(statuses.values()))
    first = {one.rank: entry for one in ranks if (entry := _first_pending(one, known.group)) is not None}
    first = {rank: entry for rank, entry in first.items() if rank in statuses}
    if not first:
        return None
    entry = min(first.values(), key=lambda pending: pending.sequence)
    return Wait(
        group=known,
        collective=entry,
        waiting=tuple(sorted(rank for rank, pending in first.items() if pending.sequence == entry.sequence)),
        missing=tuple(sorted(rank for rank, status in statuses.items() if status.last_enqueued < entry.sequence)),
    )


def _first_pending(one: RankEvidence, group: str) -> Collective | None:
    pending = [entry for entry in one.collectives if entry.pending and not entry.is_p2p and entry.group == group]
    return min(pending, key=lambda entry: entry.sequence, default=None)


def _calls_of_members(members: Sequence[RankEvidence], pending: Collective) -> tuple[Call, ...]:
    """What each rank called with the number of the pending collective."""
    groups: dict[object, list[tuple[int, Collective]]] = {}
    for one in members:
        same = [entry for entry in one.collectives if _is_same_number(entry, pending)]
        if same:
            groups.setdefault(tuple(map(_call_signature, same)), []).append((one.rank, same[0]))
    calls = [Call(collective=found[0][1], ranks=tuple(rank for rank, _ in found)) for found in groups.values()]
    return tuple(sorted(calls, key=lambda call: (-len(call.ranks), call.ranks)))


def _is_same_number(entry: Collective, other: Collective) -> bool:
    return not entry.is_p2p and entry.group == other.group and entry.sequence == other.sequence


def _call_signature(entry: Collective) -> tuple[object, ...]:
    if entry.operation.startswith(UNEQUAL):
        return (entry.operation,)
    return (entry.operation, entry.sizes, entry.dtypes)


def _has_counterpart(own: re.Match[str], entry: Collective, peer: RankEvidence | None) -> bool:
    """The peer has called it with the same number or a later one."""
    kind = "recv" if own["kind"] == "send" else "send"
    for other in () if peer is None else peer.collectives:
        parsed = P2P.match(other.operation)
        is_pair = parsed is not None and (parsed["kind"], parsed["own"], parsed["peer"]) == (
            kind,
            own["peer"],
            own["own"],
        )
        if is_pair and other.group == entry.group and other.sequence >= entry.sequence:
            return True
    return False


def _global_rank(number: int, members: Sequence[int]) -> int:
    """Messages name the ranks within the group."""
    return members[number] if number < len(members) else number


def _last_completed_entry(ranks: Sequence[RankEvidence], status: GroupStatus) -> Collective | None:
    wanted = Collective(group=status.group, sequence=status.last_completed, operation="")
    return next((entry for one in ranks for entry in one.collectives if _is_same_number(entry, wanted)), None)
