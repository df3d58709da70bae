"""What srun tells a task about its step: pure functions of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from echelon import hostlist
from echelon.errors import ConfigError

STEP_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
TASK_COUNTS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
FIRST_PORT = 12_000  # below the ports that Linux gives to clients, which start at 32768
STEPS_PER_JOB = 8
PORTS = 2_000 * STEPS_PER_JOB

_COUNT = re.compile(r"([1-9][0-9]*)(?:\(x([1-9][0-9]*)\))?")


def port(job_id: int, step_id: int) -> int:
    """No two of 2,000 jobs in a row meet on one port, nor do eight steps in a row of one job."""
    return FIRST_PORT + (job_id * STEPS_PER_JOB + step_id % STEPS_PER_JOB) % PORTS


def parse_tasks_per_node(text: str) -> list[int]:
    """`2(x3),1` is 2 2 2 1; raises ValueError."""
    counts: list[int] = []
    for item in text.split(","):
        match = _COUNT.fullmatch(item)
        if match is None or int(match.group(2) or 1) > hostlist.MAX_HOSTS:
            raise ValueError(f"{text!r} is not a count of tasks per node")
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def tasks_per_node(environ: Mapping[str, str]) -> list[int]:
    """Empty where Slurm does not say."""
    name = next((name for name in TASK_COUNTS if environ.get(name)), None)
    if name is None:
        return []
    try:
        return parse_tasks_per_node(environ[name])
    except ValueError as error:
        raise ConfigError(str(error), origin=name) from error


def hosts(environ: Mapping[str, str], names: tuple[str, ...] = STEP_LISTS) -> list[str]:
    """Empty where Slurm does not say."""
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return []
    try:
        return hostlist.expand(environ[name])
    except ValueError as error:
        raise ConfigError(str(error), origin=name) from error


def hosts_by_rank(environ: Mapping[str, str]) -> list[str]:
    """The host of every task; empty where it would be a guess."""
    if not environ.get("SLURM_STEP_ID") or not environ.get("SLURM_DISTRIBUTION", "block").startswith("block"):
        return []
    nodes, counts = hosts(environ), tasks_per_node(environ)
    if len(nodes) != len(counts):
        return []
    return [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
