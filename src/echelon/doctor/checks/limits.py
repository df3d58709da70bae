"""Resource limits (ulimit) that end ranks in the middle of a run."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.model import Check, Facts, Finding, Plan, error, number, warning
from echelon.text import format_size

NAME = "limits"
LIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "file_size": resource.RLIMIT_FSIZE,
    "address_space": resource.RLIMIT_AS,
    "cpu_seconds": resource.RLIMIT_CPU,
    "locked_memory": resource.RLIMIT_MEMLOCK,
}
LEAST_FILES = 1024
LEAST_PROCESSES = 1024
LEAST_FILE_SIZE = 64 << 30
INFINIBAND = Path("/sys/class/infiniband")


def collect(plan: Plan) -> dict[str, Any]:  # noqa: ARG001  the same signature for all collectors
    """Soft limits; None for unlimited."""
    soft = {name: resource.getrlimit(kind)[0] for name, kind in LIMITS.items()}
    found: dict[str, Any] = {name: None if value == resource.RLIM_INFINITY else value for name, value in soft.items()}
    return {**found, "infiniband": INFINIBAND.is_dir() and any(INFINIBAND.iterdir())}


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:  # noqa: ARG001
    return [*_judge_counts(node, facts), *_judge_sizes(node, facts), *_judge_locked(node, facts)]


def _judge_counts(node: str, facts: Facts) -> Iterator[Finding]:
    files, processes = number(facts, "open_files"), number(facts, "processes")
    if files is not None and files < LEAST_FILES:
        why = "ranks with many peers or loader workers fail with 'Too many open files'"
        yield error(NAME, node, f"only {files:.0f} open files (ulimit -n)", why, "--setup 'ulimit -n $(ulimit -Hn)'")
    if processes is not None and processes < LEAST_PROCESSES:
        why = "threads count too; ranks fail with 'Resource temporarily unavailable'"
        yield error(NAME, node, f"only {processes:.0f} processes (ulimit -u)", why, "--setup 'ulimit -u $(ulimit -Hu)'")


def _judge_sizes(node: str, facts: Facts) -> Iterator[Finding]:
    size, space, seconds = (number(facts, key) for key in ("file_size", "address_space", "cpu_seconds"))
    if size is not None and size < LEAST_FILE_SIZE:
        why = "a larger checkpoint or log is ended by SIGXFSZ"
        what = f"files of at most {format_size(int(size))} (ulimit -f)"
        yield error(NAME, node, what, why, "--setup 'ulimit -f unlimited'")
    if space is not None:
        why = "CUDA and memory maps reserve far more than they use"
        what = f"address space of {format_size(int(space))} (ulimit -v)"
        yield error(NAME, node, what, why, "--setup 'ulimit -v unlimited'")
    if seconds is not None:
        why = "the kernel ends a rank after that much CPU time"
        yield error(NAME, node, f"{seconds:.0f} s of CPU time (ulimit -t)", why, "--setup 'ulimit -t unlimited'")


def _judge_locked(node: str, facts: Facts) -> Iterator[Finding]:
    locked = number(facts, "locked_memory")
    if facts.get("infiniband") and locked is not None:
        why = "InfiniBand registers memory; NCCL fails with 'Call to ibv_reg_mr failed'"
        fix = "ask the administrators for memlock unlimited; --set NCCL_IB_DISABLE=1 uses TCP meanwhile"
        yield warning(NAME, node, f"only {format_size(int(locked))} of locked memory (ulimit -l)", why, fix)


def hung(node: str) -> Finding:
    return error(NAME, node, "limits cannot be read", "/sys does not answer", "reboot the node")


CHECK = Check(name=NAME, seconds=5.0, collect=collect, judge=judge, hung=hung, on_login=False)
