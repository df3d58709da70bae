"""Explains a hang: which rank holds up the others, where it is, and why. Pure.

A rank that waits for other ranks is never the culprit.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence

from echelon.diagnosis.activity import ActivityKind
from echelon.diagnosis.causes import Cause
from echelon.diagnosis.evidence import RankEvidence
from echelon.diagnosis.hang_text import (
    Case,
    describe_activity,
    format_collective,
    format_mismatch,
    prepare_case,
)
from echelon.diagnosis.history import Failure
from echelon.diagnosis.matching import (
    find_message_waits,
    find_mismatch,
    first_pending,
    is_default,
    last_common,
)
from echelon.record import record
from echelon.text import format_ranks, format_waiting, group_ranks


class HangCause(enum.Enum):
    MISSING = "missing"
    """Some ranks did not reach a collective."""
    MISMATCH = "mismatch"
    """Ranks called different collectives, or in a different order."""
    MESSAGE = "message"
    """A send or recv without its counterpart."""
    DATA_LOADER = "data_loader"
    FILE = "file"
    LOCK = "lock"
    STOPPED = "stopped"
    EXIT = "exit"
    MAIN_FIRST = "main_first"
    FINISHED = "finished"
    """Some ranks have exited while the others are in a collective."""
    INCOMPLETE = "incomplete"
    """All ranks reached a collective and it does not complete."""
    NOT_COLLECTIVE = "not_collective"
    UNKNOWN = "unknown"


CAUSES = {
    ActivityKind.DATA_LOADER: HangCause.DATA_LOADER,
    ActivityKind.FILE: HangCause.FILE,
    ActivityKind.LOCK: HangCause.LOCK,
    ActivityKind.STOPPED: HangCause.STOPPED,
    ActivityKind.EXIT: HangCause.EXIT,
}
"""A culprit that does one of these has a cause of its own."""
HINTS = {
    HangCause.MISSING: "look at that line: all ranks must reach the same collectives",
    HangCause.MISMATCH: "let all ranks call the same collectives with the same shapes in the same order; "
    "look for a condition that differs between ranks",
    HangCause.MESSAGE: "give every recv a send with the same ranks, tag and group",
    HangCause.DATA_LOADER: "look at that line of the dataset; with num_workers=0 it runs in the rank itself",
    HangCause.FILE: "check that the node can read and write this file; its file system may be down or overloaded",
    HangCause.LOCK: "find the holder of the lock in the stacks of the other threads and ranks",
    HangCause.STOPPED: "find what sent SIGSTOP, for example a debugger; kill -CONT PID on the node continues the rank",
    HangCause.EXIT: "end the threads and the atexit functions of the script before its last line",
    HangCause.MAIN_FIRST: "--hang-timeout TIME, if the block is expected to take that long",
    HangCause.FINISHED: "give every rank the same number of steps; world.shard and echelon's sampler do",
    HangCause.INCOMPLETE: "check the network between these nodes; NCCL_DEBUG=INFO shows the connections of NCCL",
    HangCause.NOT_COLLECTIVE: "--hang-timeout TIME, if this is expected to take that long",
    HangCause.UNKNOWN: "--hang-timeout TIME, if the script is expected to be silent for that long",
}


@record
class HangVerdict:
    cause: HangCause
    culprits: tuple[int, ...] = ()
    """Empty if no single rank is to blame."""
    sentence: str
    details: tuple[str, ...] = ()
    """What each rank does. Ranks that do the same share a line."""
    hint: str = ""
    place: str = ""
    """Where the first culprit is, and the operation for which the others wait: equal for the same hang."""
    number: int | None = None
    """The number of that collective, which counts from the start of the ranks."""
    host: str = ""
    """The host of the culprits, if it is only one."""


FAILURE_CAUSES = {
    HangCause.MISMATCH: Cause.HANG_IN_SCRIPT,
    HangCause.MESSAGE: Cause.HANG_IN_SCRIPT,
    HangCause.FINISHED: Cause.HANG_IN_SCRIPT,
    HangCause.EXIT: Cause.HANG_IN_SCRIPT,
    HangCause.FILE: Cause.HANG_ON_FILE,
    HangCause.STOPPED: Cause.RANK_STOPPED,
}
"""What the rules after a failure distinguish. Other hangs may pass."""


def hang_failure(verdict: HangVerdict, *, step: int | None) -> Failure:
    """`step` is the highest reported step. A script that reports none is at the number of its collective."""
    number = f" #{verdict.number}" if step is None and verdict.number is not None else ""
    signature = f"{verdict.cause.value}: {verdict.place}{number}"
    cause = FAILURE_CAUSES.get(verdict.cause, Cause.HANG)
    return Failure(cause=cause, signature=signature, step=step, host=verdict.host)


def explain_hang(ranks: Sequence[RankEvidence], *, idle_seconds: float, finished: Collection[int] = ()) -> HangVerdict:
    """The verdict on ranks that made no progress for `idle_seconds`. `finished` are ranks that exited with code 0."""
    case = prepare_case(ranks, idle_seconds=idle_seconds, finished=finished)
    return next(verdict for rule in RULES if (verdict := rule(case)) is not None)


def _verdict(case: Case, cause: HangCause, culprits: Sequence[int], sentence: str) -> HangVerdict:
    texts = {rank: describe_activity(activity) for rank, activity in case.activities.items()}
    hosts = {case.ranks[rank].host for rank in culprits if rank in case.ranks}
    wait = case.waits[0].collective if case.waits else None
    return HangVerdict(
        cause=cause,
        culprits=tuple(culprits),
        sentence=sentence,
        details=group_ranks(texts),
        hint=HINTS[cause],
        place=_place(case, culprits),
        number=None if wait is None else wait.sequence,
        host=hosts.pop() if len(hosts) == 1 else "",
    )


def _place(case: Case, culprits: Sequence[int]) -> str:
    """`dataset.py:88 (time.sleep), all_reduce`."""
    first = next((case.activities[rank] for rank in (*culprits, *case.ranks) if rank in case.activities), None)
    operation = case.waits[0].collective.operation if case.waits else ""
    return ", ".join(filter(None, (first.location if first is not None else "", operation)))


def _cause(case: Case, culprits: Sequence[int], otherwise: HangCause) -> HangCause:
    """By what most of the culprits do; the first of them decides a tie."""
    kinds = [case.activities[rank].kind for rank in culprits]
    return CAUSES.get(max(kinds, key=kinds.count), otherwise)


def _waiters(case: Case) -> str:
    """`; 7 ranks wait in all_reduce #12 of the default group`, or nothing if no rank waits."""
    if not case.waiting:
        return ""
    operations = {case.activities[rank].operation for rank in case.waiting}
    where = ""
    if case.waits and set(case.waits[0].waiting) == set(case.waiting):
        where = f" in {format_collective(case.waits[0].collective, case.waits[0].group)}"
    elif len(operations) == 1:
        where = f" in {operations.pop()}"
    return f"; {format_waiting(case.waiting)}{where}"


def _stopped(case: Case) -> HangVerdict | None:
    culprits = case.of_kind(ActivityKind.STOPPED)
    if not culprits:
        return None
    verb = "is" if len(culprits) == 1 else "are"
    sentence = f"{case.named(culprits)} {verb} stopped by a signal (SIGSTOP){_waiters(case)}"
    return _verdict(case, HangCause.STOPPED, culprits, sentence)


def _main_first(case: Case) -> HangVerdict | None:
    """The first rank of all ranks, or of a node, is in the block for which the others wait."""
    waiting = case.of_kind(ActivityKind.MAIN_FIRST)
    hosts = {case.ranks[rank].host for rank in waiting}
    firsts = {min(rank for rank, one in case.ranks.items() if one.host == host) for host in hosts}
    for candidates in ({0}, firsts):
        culprits = sorted(candidates & set(case.held_up))
        if waiting and culprits:
            sentence = f"{case.named_doing(culprits)}; {format_waiting(waiting)} for it in main_first"
            return _verdict(case, HangCause.MAIN_FIRST, culprits, sentence)
    return None


def _mismatch(case: Case) -> HangVerdict | None:
    found = find_mismatch(tuple(case.ranks.values()))
    if found is None:
        return None
    common, *others = found.calls
    is_tie = any(len(call.ranks) == len(common.ranks) for call in others)
    culprits = sorted(rank for call in (found.calls if is_tie else others) for rank in call.ranks)
    sentence = format_mismatch(found, case.named(found.calls[-1].ranks))
    return _verdict(case, HangCause.MISMATCH, culprits, sentence)


def _missing(case: Case) -> HangVerdict | None:
    for wait in case.waits:
        culprits = [rank for rank in wait.missing if rank in case.held_up]
        if culprits:
            what = format_collective(wait.collective, wait.group)
            sentence = (
                f"{case.named(culprits)} did not reach {what}; {case.doing(culprits)}; {format_waiting(case.waiting)}"
            )
            return _verdict(case, _cause(case, culprits, HangCause.MISSING), culprits, sentence)
    return None


def _finished(case: Case) -> HangVerdict | None:
    for wait in case.waits:
        members = wait.group.ranks
        gone = [rank for rank in case.finished if rank in members or is_default(wait.group)]
        if gone and not wait.missing:
            what = format_collective(wait.collective, wait.group)
            sentence = f"{format_ranks(gone)} exited without reaching {what}; {format_waiting(case.waiting)}"
            return _verdict(case, HangCause.FINISHED, gone, sentence)
    return None


def _unanswered_message(case: Case) -> HangVerdict | None:
    """A recorded send or recv whose peer has not called the counterpart and waits for no other rank."""
    for wait in find_message_waits(tuple(case.ranks.values())):
        if not wait.is_matched and wait.peer in case.held_up:
            sentence = (
                f"{case.named([wait.peer])} did not call the counterpart of {wait.collective.operation} "
                f"on rank {wait.rank}; {case.doing([wait.peer])}; {format_waiting(case.waiting)}"
            )
            return _verdict(case, _cause(case, [wait.peer], HangCause.MESSAGE), [wait.peer], sentence)
    return None


def _held_up(case: Case) -> HangVerdict | None:
    """Some ranks wait, but the recorders do not show for which rank: all others are named."""
    known = [rank for rank in case.held_up if case.activities[rank].kind is not ActivityKind.UNKNOWN]
    culprits = known or case.held_up
    if not case.waiting or not culprits:
        return None
    sentence = f"{case.named_doing(culprits)}{_waiters(case)}"
    otherwise = HangCause.MESSAGE if case.of_kind(ActivityKind.MESSAGE) else HangCause.MISSING
    return _verdict(case, _cause(case, culprits, otherwise if known else HangCause.UNKNOWN), culprits, sentence)


def _circle(case: Case) -> HangVerdict | None:
    """All ranks wait for each other."""
    if not case.waiting:
        return None
    if len(case.waits) == 1 and set(case.waits[0].waiting) == set(case.ranks):
        what = format_collective(case.waits[0].collective, case.waits[0].group)
        sentence = f"{case.named(case.waiting)} reached {what}, but it does not complete"
        return _verdict(case, HangCause.INCOMPLETE, (), sentence)
    cause = HangCause.MESSAGE if case.of_kind(ActivityKind.MESSAGE) else HangCause.MISMATCH
    places = _waiting_places(case)
    sentence = f"the ranks wait for each other: {', '.join(f'{format_ranks(r)} {text}' for text, r in places.items())}"
    return _verdict(case, cause, _minority(list(places.values())), sentence)


def _minority(groups: Sequence[Sequence[int]]) -> list[int]:
    """The ranks that wait elsewhere than most ranks do. Empty if no place has more than half of the ranks."""
    largest = max(groups, key=len)
    others = sorted(rank for group in groups if group is not largest for rank in group)
    return others if len(others) < len(largest) else []


def _waiting_places(case: Case) -> dict[str, list[int]]:
    """The ranks by where they wait: `in recv at a.py:10`, `in barrier #4 of the default group at a.py:11`."""
    groups: dict[str, list[int]] = {}
    for rank in case.waiting:
        activity, pending = case.activities[rank], first_pending(case.ranks[rank])
        what = activity.operation if pending is None else format_collective(pending[1], pending[0], size=False)
        at = f" at {activity.location}" if activity.location else ""
        groups.setdefault(f"in {what}{at}", []).append(rank)
    return groups


def _not_collective(case: Case) -> HangVerdict | None:
    """No rank waits for another one."""
    known = [rank for rank in case.held_up if case.activities[rank].kind is not ActivityKind.UNKNOWN]
    if not known:
        return None
    stuck = [rank for rank in known if case.activities[rank].kind in CAUSES] or known
    stuck = [rank for rank in stuck if not _is_about_to_exit(case, rank)] or stuck
    common = last_common(tuple(case.ranks.values()))
    past = ""
    if common is not None:
        past = f"not a collective: all ranks are past {format_collective(common[1], common[0], size=False)}; "
    sentence = f"{past}{case.named_doing(stuck)}"
    return _verdict(case, _cause(case, stuck, HangCause.NOT_COLLECTIVE), stuck, sentence)


def _is_about_to_exit(case: Case, rank: int) -> bool:
    """At exit and busy: it frees its memory, which takes seconds on a loaded node."""
    process = case.ranks[rank].process
    return case.activities[rank].kind is ActivityKind.EXIT and process is not None and process.state == "R"


def _no_evidence(case: Case) -> HangVerdict:
    reports = any(one.step is not None for one in case.ranks.values())
    what = "no new step" if reports else "no output and no CPU time"
    sentence = f"no progress for {case.idle_seconds:g} s: {what} from {format_ranks(case.ranks)}"
    return _verdict(case, HangCause.UNKNOWN, (), sentence)


RULES: tuple[Callable[[Case], HangVerdict | None], ...] = (
    _stopped,
    _main_first,
    _mismatch,
    _missing,
    _finished,
    _unanswered_message,
    _held_up,
    _circle,
    _not_collective,
    _no_evidence,
)
"""The first rule that applies gives the verdict."""
