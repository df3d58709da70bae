"""Findings of `echelon doctor`, and the results of checks that they are made from."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from echelon.record import record

Facts = Mapping[str, Any]
"""What a check read, as JSON values. Every value may be missing: a node of another version may have sent it."""


class Severity(str, enum.Enum):
    ERROR = "error"  # a run on this node fails or hangs
    WARNING = "warning"  # a run may fail, or is slow
    NOTE = "note"  # worth knowing, such as a change since the last good check


@record
class Finding:
    severity: Severity
    check: str
    node: str
    """Host name; two names with an arrow for a connection; empty for the whole job."""
    what: str
    why: str = ""
    fix: str = ""
    excludes: tuple[str, ...] = ()
    """Nodes without which the finding disappears."""


@record
class Result:
    """The outcome of one check on one node. Exactly one of `facts` and `problem` is meaningful."""

    check: str
    seconds: float = 0.0
    facts: Facts = field(default_factory=dict)
    problem: str = ""
    """Why there are no facts: the check failed."""
    timed_out: bool = False


@record
class Plan:
    """What the doctor checks on a node. Travels to the node as JSON."""

    ranks: int = 1
    """Ranks per node of the run that is planned."""
    gpus: int = 0
    """GPUs per node of that run."""
    folders: tuple[str, ...] = ()
    """Folders that ranks write to, such as checkpoints."""
    paths: tuple[str, ...] = ()
    """Script, interpreter and environment, which every node must see."""
    python: str = ""
    """The Python of the ranks, if it is not the one of this process."""
    interface: str = ""
    """The network of the run; empty if the routes decide."""
    is_login: bool = False
    """This machine submits jobs, but runs no ranks."""
    rehearsed: bool = False
    """The nodes are processes on one machine."""
    with_torch: bool = True
    tiers: tuple[int, ...] = (2, 3, 4)


@record
class Node:
    """A node as the judges see it: its name and the results of its checks."""

    name: str
    results: Mapping[str, Result] = field(default_factory=dict)

    def facts(self, check: str) -> Facts:
        """Empty if the check did not run or failed."""
        result = self.results.get(check)
        return {} if result is None else result.facts


Collector = Callable[[Plan], Facts]
Judge = Callable[[str, Facts, Plan], Sequence[Finding]]


@record
class Check:
    """A check of one node. `collect` reads the machine, in a process of its own. `judge` is pure."""

    name: str
    seconds: float
    """Timeout of `collect`."""
    collect: Collector
    judge: Judge
    hung: Callable[[str], Finding]
    """The finding if `collect` does not return in time."""
    on_login: bool = True
    """Whether the check says something about a machine that runs no ranks."""


def number(facts: Facts, key: str) -> float | None:
    """A number of untrusted facts; None if it is missing or something else."""
    value = facts.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text(facts: Facts, key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def mapping(facts: Facts, key: str) -> Mapping[str, Any]:
    value = facts.get(key)
    return value if isinstance(value, Mapping) else {}


def items(facts: Facts, key: str) -> Sequence[Any]:
    value = facts.get(key)
    return value if isinstance(value, (list, tuple)) else ()


def error(check: str, node: str, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(severity=Severity.ERROR, check=check, node=node, what=what, why=why, fix=fix, excludes=(node,))


def warning(check: str, node: str, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(severity=Severity.WARNING, check=check, node=node, what=what, why=why, fix=fix)
