"""Rendezvous: each rank registers in the store. After a timeout, all ranks raise an error that names the missing."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.system import hostlist
from echelon.train.rank import Rank
from echelon.train.store import SharedStore, Store, leave_store, poll_for_key, translate_store_errors
from echelon.untrusted import parse_json

ALL_HERE = b"all here"
MAX_NAMED_RANKS = 16


def register_rank(shared: SharedStore, rank: Rank, *, hosts: Callable[[], Sequence[str]], timeout: timedelta) -> None:
    """Returns when all ranks have checked in. After the timeout, all present ranks raise the same EnvironmentProblem.

    Raises EnvironmentProblem at once if another process has checked in with this rank.
    """
    with translate_store_errors(shared):
        verdict = _rendezvous_result(shared, rank, hosts, timeout)
    if verdict == ALL_HERE:
        return
    leave_store(shared)
    raise missing_error(parse_json(verdict), size=rank.world_size, place=shared.place, timeout=timeout)


def _rendezvous_result(
    shared: SharedStore, rank: Rank, hosts: Callable[[], Sequence[str]], timeout: timedelta
) -> bytes:
    """ALL_HERE, or the missing ranks as JSON. All ranks get the same value.

    The last rank to arrive stores the first, or the first rank to time out stores the second. Only one of them is
    stored.
    """
    store, me = shared.signed, _own_record(rank)
    first = store.compare_set(f"here/{rank.rank}", "", me).decode()
    if first != me:
        raise _duplicate_rank_error(shared.place, rank, parse_json(first))
    if store.add("here", 1) == rank.world_size:
        store.compare_set("verdict", "", ALL_HERE.decode())
    if not poll_for_key(store, "verdict", timeout):
        missing = _missing_ranks(store, range(rank.world_size))
        named = _add_hosts(store, missing, rank.world_size, hosts())
        store.compare_set("verdict", "", json.dumps(named) if named else ALL_HERE.decode())
    return store.get("verdict")


def _own_record(rank: Rank) -> str:
    card = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.time(),
        "ranks": _ranks_of_node(rank),
    }
    return json.dumps(card)


def _ranks_of_node(rank: Rank) -> list[int]:
    """First and last rank of this node; an empty range unless they are certainly consecutive.

    No host name in the error is better than a wrong one.
    """
    first = rank.rank - rank.local_rank
    return [first, first + rank.local_world_size - 1] if rank.source in ("echelon", "torchrun") else [0, -1]


def _missing_ranks(store: Store, ranks: Sequence[int]) -> list[int]:
    """Searches by halves: few store queries for a few missing ranks of ten thousand."""
    if store.check([f"here/{rank}" for rank in ranks]):
        return []
    if len(ranks) == 1:
        return list(ranks)
    middle = len(ranks) // 2
    return _missing_ranks(store, ranks[:middle]) + _missing_ranks(store, ranks[middle:])


def _add_hosts(store: Store, missing: Sequence[int], size: int, hosts: Sequence[str]) -> list[tuple[int, str | None]]:
    away = set(missing)
    cards = [parse_json(store.get(f"here/{rank}")) for rank in range(size) if rank not in away]
    return [(rank, host_of_rank(rank, cards, hosts)) for rank in missing]


def host_of_rank(rank: int, cards: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> str | None:
    """From the launcher's list, or from a rank of the same node that has checked in."""
    if rank < len(hosts):
        return hosts[rank]
    return next((card["host"] for card in cards if card["ranks"][0] <= rank <= card["ranks"][1]), None)


def missing_error(
    missing: Sequence[tuple[int, str | None]], *, size: int, place: str, timeout: timedelta
) -> EnvironmentProblem:
    named = [f"rank {rank}" + (f" ({host})" if host else "") for rank, host in missing[:MAX_NAMED_RANKS]]
    more = [f"{len(missing) - MAX_NAMED_RANKS} more"] if len(missing) > MAX_NAMED_RANKS else []
    return EnvironmentProblem(
        f"{len(missing)} of {size} ranks did not join within {timeout.total_seconds():g} s: {', '.join(named + more)}",
        origin=f"the rendezvous at {place}",
        why="every rank must call echelon.join()",
        hint=f"look at the log of rank {missing[0][0]}; echelon.join(timeout=...) waits longer",
    )


def _duplicate_rank_error(place: str, rank: Rank, first: Mapping[str, Any]) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"rank {rank.rank} has already joined: process {first['pid']} on {first['host']}",
        origin=f"the rendezvous at {place}; rank {rank.rank} was set by {rank.source}",
        why="two processes have the same rank, two jobs use one address, or the file of an earlier run still exists",
        hint="use a different MASTER_PORT or rendezvous file for every job",
    )


def slurm_hosts(environ: Mapping[str, str], rank: Rank) -> list[str]:
    """The host of each rank according to srun; empty unless it is certain."""
    hosts = hostlist.hosts_by_rank(environ) if rank.source == "srun" else []
    return hosts if len(hosts) == rank.world_size else []
