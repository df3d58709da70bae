"""The coordinator of a doctor job: a process on the first node that leads all nodes through the tiers."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from echelon.doctor.checks.clock import offset_seconds
from echelon.doctor.meeting import Meeting, open_listener
from echelon.doctor.model import Plan
from echelon.doctor.pairs import HIGH_LATENCY, SLOW_BYTES, is_slow, rounds, smallest_cover
from echelon.system import processes

ARRIVAL_SECONDS = 10.0
"""How long a node may be later than the first one."""
READY_SECONDS = 30.0
TORCH_SECONDS = 75.0
PAIR_SECONDS = 12.0
LOOK_SECONDS = 10.0
REDUCE_SECONDS = 40.0
CLOCK_QUESTIONS = 5
MOST_REPEATS = 8
SIZES = (1 << 20, 64 << 20)


def coordinate(listener: socket.socket, token: bytes, size: int, plan: Plan) -> None:
    """Leads all nodes through the tiers. Runs in a process of its own."""
    meeting = Meeting(listener=listener, token=token, size=size)
    meeting.gather(ARRIVAL_SECONDS)
    present = sorted(meeting.hellos)
    meeting.send(present, {"roster": {str(rank): meeting.hellos[rank] for rank in present}})
    present = sorted(meeting.receive(present, "ready", READY_SECONDS))
    measure_clocks(meeting, present)
    meeting.ask(present, {"look": present}, "looked", LOOK_SECONDS)
    meeting.ask(present, {"clean": True}, "cleaned", LOOK_SECONDS)
    found = measure_pairs(meeting, present) if 3 in plan.tiers else {}
    ready = meeting.ask(present, {"torch": True}, "versions", TORCH_SECONDS)
    found = measure_again(meeting, found)
    good = [rank for rank in connected_ranks(present, found) if rank in ready]
    if 4 in plan.tiers:
        chosen = with_usual_version(good, {rank: ready[rank].get("torch") for rank in good})
        has_gpus = bool(plan.gpus) and all(ready[rank].get("gpus") for rank in chosen)
        reduce_all(meeting, chosen, "nccl" if has_gpus else "gloo")
    meeting.close()


def measure_clocks(meeting: Meeting, ranks: Sequence[int]) -> None:
    """The best of several questions: the one with the shortest way."""
    best: dict[int, tuple[float, float]] = {}
    for rank in ranks:
        for _ in range(CLOCK_QUESTIONS):
            sent = time.time()
            answers = meeting.ask([rank], {"clock": True}, "time", 2.0)
            if rank in answers:
                offset, error = offset_seconds(sent, float(answers[rank]), time.time())
                best[rank] = min(best.get(rank, (offset, error)), (offset, error), key=lambda pair: pair[1])
    for rank, (offset, error) in best.items():
        meeting.send([rank], {"result": {"check": "clock", "facts": {"offset": offset, "error": error}}})


def with_usual_version(ranks: Sequence[int], versions: Mapping[int, Any]) -> list[int]:
    """The nodes with the version of torch that most have. Others may not understand each other. Pure."""
    found = [versions[rank] for rank in ranks if versions.get(rank)]
    usual = Counter(found).most_common(1)[0][0] if found else None
    return [rank for rank in ranks if usual is not None and versions.get(rank) == usual]


Measured = dict[tuple[int, int], tuple[float, float]]
"""Bytes per second and latency of each direction; 0 bytes for a connection that failed."""


def measure_pairs(meeting: Meeting, ranks: Sequence[int]) -> Measured:
    """Runs the rounds, both directions of each."""
    found: Measured = {}
    for pairs in rounds(len(ranks)):
        chosen = [(ranks[a], ranks[b]) for a, b in pairs]
        found |= measure_at_once(meeting, chosen)
        found |= measure_at_once(meeting, [(b, a) for a, b in chosen])
    return found


def measure_at_once(meeting: Meeting, directed: Sequence[tuple[int, int]]) -> Measured:
    """Measures disjoint connections, each from its first node to its second."""
    for source, target in directed:
        meeting.send([target], {"serve": source})
        meeting.send([source], {"measure": target})
    answers = meeting.receive([rank for pair in directed for rank in pair], "measured", PAIR_SECONDS)
    failed = (0.0, 0.0)
    return {(a, b): tuple(answers[a]) if answers.get(a) and answers.get(b) else failed for a, b in directed}


def measure_again(meeting: Meeting, found: Measured) -> Measured:
    """Measures slow connections again, one at a time: other load may have disturbed the first measurement."""
    best = max((rate for rate, _ in found.values()), default=0.0)
    slow = [pair for pair, (rate, late) in found.items() if rate and (is_slow(rate, best) or late > HIGH_LATENCY)]
    again = dict(found)
    for pair in slow[:MOST_REPEATS]:
        again |= measure_at_once(meeting, [pair])
    return again


def connected_ranks(ranks: Sequence[int], found: Measured) -> list[int]:
    """The nodes whose connections among each other all work and are not slow. Pure."""
    left_out = smallest_cover([pair for pair, (rate, _) in found.items() if rate < SLOW_BYTES])
    return [rank for rank in ranks if rank not in left_out]


def reduce_all(meeting: Meeting, ranks: Sequence[int], backend: str) -> None:
    """All good nodes take part in one all_reduce. The first of them hosts the store."""
    if len(ranks) < 2:
        return
    ports = meeting.ask([ranks[0]], {"store": True}, "port", 5.0)
    if ranks[0] not in ports:
        return
    order = {
        "backend": backend,
        "address": meeting.hellos[ranks[0]]["address"],
        "port": ports[ranks[0]],
        "size": len(ranks),
        "bytes": list(SIZES),
        "seconds": REDUCE_SECONDS / 2,
    }
    for place, rank in enumerate(ranks):
        meeting.send([rank], {"reduce": {**order, "rank": place}})
    meeting.receive(ranks, "reduced", REDUCE_SECONDS)


def start_coordinator(address: str, port: int, token: bytes, size: int, plan: Plan) -> tuple[int, int]:
    """Forks the coordinator. Returns its pid and its port. Raises OSError if the port cannot be used."""
    listener, parent = open_listener(address, port), os.getpid()
    pid = os.fork()
    if pid == 0:
        processes.die_with_parent(parent)
        try:
            coordinate(listener, token, size, plan)
        except Exception:  # noqa: BLE001  the outermost function of a process
            traceback.print_exc()
        os._exit(0)
    chosen = int(listener.getsockname()[1])
    listener.close()
    return pid, chosen
