"""Who is here: each rank checks in at the store, and if somebody stays away everybody is told who."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.runtime import slurm_step
from echelon.runtime.meeting import Meeting, Store, appears, leave, store_errors
from echelon.runtime.rank import Rank

ALL_HERE = b"all here"
NAMED_AT_MOST = 16


def check_in(meeting: Meeting, rank: Rank, *, hosts: Callable[[], Sequence[str]], timeout: timedelta) -> None:
    """Returns when all ranks are here; otherwise all that are here raise the same EnvironmentProblem."""
    with store_errors(meeting):
        verdict = _verdict(meeting, rank, hosts, timeout)
    if verdict == ALL_HERE:
        return
    leave(meeting)
    raise missing_error(json.loads(verdict), size=rank.world_size, place=meeting.place, timeout=timeout)


def _verdict(meeting: Meeting, rank: Rank, hosts: Callable[[], Sequence[str]], timeout: timedelta) -> bytes:
    """The last to come says that all are here, or the first to lose patience says who is missing; nobody says both."""
    store, me = meeting.store, _card(rank)
    first = store.compare_set(f"here/{rank.rank}", "", me).decode()
    if first != me:
        raise _taken(meeting.place, rank, json.loads(first))
    if store.add("here", 1) == rank.world_size:
        store.compare_set("verdict", "", ALL_HERE.decode())
    if not appears(store, "verdict", timeout):
        missing = _missing(store, range(rank.world_size))
        named = _with_hosts(store, missing, rank.world_size, hosts())
        store.compare_set("verdict", "", json.dumps(named) if named else ALL_HERE.decode())
    return store.get("verdict")


def _card(rank: Rank) -> str:
    card = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.time(),
        "ranks": _ranks_here(rank),
    }
    return json.dumps(card)


def _ranks_here(rank: Rank) -> list[int]:
    """First and last rank of this node, where they are certain to be in a row; a wrong host is worse than none."""
    first = rank.rank - rank.local_rank
    return [first, first + rank.local_world_size - 1] if rank.source in ("echelon", "torchrun") else [0, -1]


def _missing(store: Store, ranks: Sequence[int]) -> list[int]:
    """By halves: a few questions for a few missing ranks of ten thousand."""
    if store.check([f"here/{rank}" for rank in ranks]):
        return []
    if len(ranks) == 1:
        return list(ranks)
    middle = len(ranks) // 2
    return _missing(store, ranks[:middle]) + _missing(store, ranks[middle:])


def _with_hosts(store: Store, missing: Sequence[int], size: int, hosts: Sequence[str]) -> list[tuple[int, str | None]]:
    away = set(missing)
    cards = [json.loads(store.get(f"here/{rank}")) for rank in range(size) if rank not in away]
    return [(rank, host_of(rank, cards, hosts)) for rank in missing]


def host_of(rank: int, cards: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> str | None:
    """From the launcher's list, or from a rank of the same node that is here."""
    if rank < len(hosts):
        return hosts[rank]
    return next((card["host"] for card in cards if card["ranks"][0] <= rank <= card["ranks"][1]), None)


def missing_error(
    missing: Sequence[tuple[int, str | None]], *, size: int, place: str, timeout: timedelta
) -> EnvironmentProblem:
    named = [f"rank {rank}" + (f" ({host})" if host else "") for rank, host in missing[:NAMED_AT_MOST]]
    more = [f"{len(missing) - NAMED_AT_MOST} more"] if len(missing) > NAMED_AT_MOST else []
    return EnvironmentProblem(
        f"{len(missing)} of {size} ranks did not come within {timeout.total_seconds():g} s: {', '.join(named + more)}",
        origin=f"the rendezvous at {place}",
        why="every rank has to reach echelon.join(), and these have not",
        hint=f"look at the log of rank {missing[0][0]}; echelon.join(timeout=...) waits longer",
    )


def _taken(place: str, rank: Rank, first: Mapping[str, Any]) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"rank {rank.rank} is here already: process {first['pid']} on {first['host']}",
        origin=f"the rendezvous at {place}; rank {rank.rank} as {rank.source} tells",
        why="two processes have one rank, or two jobs meet in one place, or a file of an earlier run was left there",
        hint="give every job a MASTER_PORT, or a rendezvous file, of its own",
    )


def slurm_hosts(environ: Mapping[str, str], rank: Rank) -> list[str]:
    """Where srun put each rank, as far as that is no guess."""
    hosts = slurm_step.hosts_by_rank(environ) if rank.source == "srun" else []
    return hosts if len(hosts) == rank.world_size else []
