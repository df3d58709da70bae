"""Cores in the affinity mask, memory of the cgroup, and shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.model import Check, Facts, Finding, Plan, error, number, warning
from echelon.system.cgroups import find_cgroup, read_field, read_number, smallest_limit
from echelon.text import format_size, plural

NAME = "compute"
MEMORY_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
LEAST_MEMORY = 512 << 20
"""Bytes per rank. A rank that has imported torch holds about half of it."""
LITTLE_MEMORY = 1 << 30
LEAST_SHARED = 128 << 20
"""Bytes. Docker's default of 64 MiB is too small for loaders with workers."""
LITTLE_SHARED = 1 << 30
ROOT = Path("/")
SHARED = "/dev/shm"  # noqa: S108  only looked at


def collect(plan: Plan, root: Path = ROOT) -> dict[str, Any]:  # noqa: ARG001  the same signature for all collectors
    cgroup = find_cgroup(os.getpid(), "memory", root)
    limit_name, used_name = MEMORY_FILES[cgroup.version]
    limit = smallest_limit(cgroup, limit_name)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "machine_cores": os.cpu_count(),
        "memory_limit": None if limit is None else limit[0],
        "memory_used": None if limit is None else read_number(limit[1] / used_name),
        "memory_free": _kibibytes(root, "MemAvailable"),
        **shared_memory(root / "dev/shm"),
    }


def _kibibytes(root: Path, name: str) -> int | None:
    found = read_field(root / "proc/meminfo", name)
    return None if found is None else found << 10


def shared_memory(folder: Path) -> dict[str, Any]:
    try:
        facts = os.statvfs(folder)
    except OSError as problem:
        return {"shared_problem": problem.strerror}
    writable = os.access(folder, os.W_OK)
    return {
        "shared_size": facts.f_blocks * facts.f_frsize,
        "shared_free": facts.f_bavail * facts.f_frsize,
        **({} if writable else {"shared_problem": "Permission denied"}),
    }


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:
    return [*_judge_cores(node, facts, plan), *_judge_memory(node, facts, plan), *_judge_shared(node, facts)]


def _judge_cores(node: str, facts: Facts, plan: Plan) -> Iterator[Finding]:
    cores = number(facts, "cores")
    if cores is not None and cores < plan.ranks:
        yield error(
            NAME,
            node,
            f"{plural(int(cores), 'core')} for {plural(plan.ranks, 'rank')}",
            f"the affinity mask allows {int(cores)} of {facts.get('machine_cores')} cores",
            f"--cpus {max(plan.ranks, 4 * plan.gpus)} requests more cores per node",
        )


def memory_available(facts: Facts) -> float | None:
    """Bytes that the job can still use: the rest of its cgroup's limit, or what the machine has."""
    limit, used, free = number(facts, "memory_limit"), number(facts, "memory_used"), number(facts, "memory_free")
    rest = None if limit is None else limit - (used or 0)
    known = [value for value in (rest, free) if value is not None]
    return min(known, default=None)


def _judge_memory(node: str, facts: Facts, plan: Plan) -> Iterator[Finding]:
    available = memory_available(facts)
    per_rank = None if available is None else available / plan.ranks
    if per_rank is None or per_rank >= LITTLE_MEMORY:
        return
    limit = number(facts, "memory_limit")
    source = "no cgroup limit" if limit is None else f"the cgroup's limit is {format_size(int(limit))}"
    what = f"{format_size(max(0, int(per_rank)))} of memory per rank"
    make = error if per_rank < LEAST_MEMORY else warning
    yield make(NAME, node, what, f"{source}; {plural(plan.ranks, 'rank')}", "--mem SIZE requests more memory per node")


def _judge_shared(node: str, facts: Facts) -> Iterator[Finding]:
    problem, size, free = facts.get("shared_problem"), number(facts, "shared_size"), number(facts, "shared_free")
    if problem:
        yield error(NAME, node, f"{SHARED} cannot be used", str(problem), "mount a tmpfs at /dev/shm")
    elif free is not None and free < LITTLE_SHARED:
        make = error if free < LEAST_SHARED else warning
        why = f"of {format_size(int(size or 0))}; loaders with workers and NCCL die of SIGBUS when it is full"
        fix = "raise its size (docker: --shm-size 8g), or remove old files in it: ls /dev/shm"
        yield make(NAME, node, f"{SHARED} has {format_size(int(free))} free", why, fix)


def hung(node: str) -> Finding:
    return error(NAME, node, "/proc or /dev/shm does not answer", "", "reboot the node")


CHECK = Check(name=NAME, seconds=5.0, collect=collect, judge=judge, hung=hung, on_login=False)
