"""What starts the ranks of a node, or of the whole job, where our agents do not do it themselves. Pure."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from echelon.command import Command
from echelon.job import Job

LAUNCHERS = ("ranks", "torchrun", "accelerate", "legacy", "srun", "mpirun")


class Scope(enum.Enum):
    RANK = "our agents start the ranks themselves"
    NODE = "one launcher on each node"
    JOB = "one launcher on the first node, for the ranks of all nodes"


SCOPES = {"ranks": Scope.RANK, "srun": Scope.JOB, "mpirun": Scope.JOB}
"""Of those that are not one on each node."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """What was decided, of which a launcher is told its part; as words, for a script shows variables instead."""

    node_rank: str
    is_first: str
    """1 on the first node, and 0 on the others."""
    nodes: int
    procs_per_node: int
    main_address: str
    main_port: str
    launcher_port: str
    """Where the launcher's own processes meet, if not at the main port."""
    own_address: str
    hosts: tuple[str, ...]
    """By node rank."""
    folder: str
    """Of this node's own, and gone with the run."""
    container: tuple[str, ...] = ()
    """Flags by which srun makes the ranks' container, where it does."""
    is_root: bool = False
    config: str = ""
    """What stands in the launcher's own configuration file, where it has one."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.procs_per_node


class Launcher(Protocol):
    OURS: Mapping[str, str]
    """Its options that are decided by us, and our setting for each that has one."""

    def command(self, job: Job, where: Where, worker: Sequence[str], environ: Mapping[str, str]) -> Command:
        """What is executed, with the variables that it needs besides `environ`; it starts `worker` for each rank."""


def launcher_of(name: str) -> Launcher:
    module: Any = importlib.import_module(f"echelon.launchers.{name}")
    launcher: Launcher = module
    return launcher


def scope_of(job: Job) -> Scope:
    return SCOPES.get(job.launcher, Scope.NODE)


def flags(options: Mapping[str, str]) -> Iterable[str]:
    """Options as most programs take them."""
    return (f"--{name}={value}" if value else f"--{name}" for name, value in options.items())
