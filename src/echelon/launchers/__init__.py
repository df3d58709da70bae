"""Launchers: programs that start the ranks of a node or of the whole job instead of our agents. Pure."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from echelon.job import Job
from echelon.record import record
from echelon.shell import Command

LAUNCHERS = ("ranks", "torchrun", "accelerate", "legacy", "srun", "mpirun")


class Scope(enum.Enum):
    RANK = "our agents start the ranks themselves"
    NODE = "one launcher on each node"
    JOB = "one launcher on the first node, for the ranks of all nodes"


SCOPES = {"ranks": Scope.RANK, "srun": Scope.JOB, "mpirun": Scope.JOB}
"""Every launcher that is not listed has Scope.NODE."""


@record
class LaunchContext:
    """Nodes, addresses and ports of one start, from which a launcher takes its arguments. Most are strings, because a
    rendered script contains shell variables instead of values."""

    node_rank: str
    is_first: str
    """1 on the first node, 0 on the others."""
    nodes: int
    procs_per_node: int
    main_address: str
    main_port: str
    launcher_port: str
    """Port of the rendezvous of the launcher's own processes, if it is not the main port."""
    own_address: str
    hosts: tuple[str, ...]
    """Ordered by node rank."""
    folder: str
    """Folder of this node only. It is removed after the run."""
    rehearses_nodes: bool = False
    """All nodes are this machine."""
    container: tuple[str, ...] = ()
    """Flags with which srun creates the ranks' container; empty if srun does not create it."""
    is_root: bool = False
    remote_shell: str = ""
    """The program with which mpirun starts its daemons on other hosts; empty for its default."""
    config: str = ""
    """Content of the launcher's configuration file; empty if it has none."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.procs_per_node


class LaunchCommand(Protocol):
    def __call__(self, job: Job, where: LaunchContext, worker: Sequence[str], environ: Mapping[str, str]) -> Command:
        """The command that starts `worker` for each rank, with the variables that it needs besides `environ`."""


@record
class Launcher:
    command: LaunchCommand
    reserved_options: Mapping[str, str]
    """Options of the launcher that only Echelon sets, each with the Echelon flag to use instead, or empty."""


MODULES = {"legacy": "torchrun"}
"""The module of a launcher, if it is not its name. `LAUNCHERS` in the module has the launcher."""


def load_launcher(name: str) -> Launcher:
    module = importlib.import_module(f"echelon.launchers.{MODULES.get(name, name)}")
    launcher: Launcher = module.LAUNCHERS[name]
    return launcher


def launcher_scope(job: Job) -> Scope:
    return SCOPES.get(job.launcher, Scope.NODE)


def option_flags(options: Mapping[str, str]) -> Iterable[str]:
    """Options in the form --name=value, or --name if the value is empty."""
    return (f"--{name}={value}" if value else f"--{name}" for name, value in options.items())


class IncompatiblePair(NamedTuple):
    why: str
    hint: str


def find_incompatible_pair(
    launcher: str, environment: str, *, has_srun: bool, mpirun_reaches_nodes: bool
) -> IncompatiblePair | None:
    """Why the combination cannot work; None if it can."""
    if launcher == "srun" and not has_srun:
        return IncompatiblePair("srun works only in a Slurm job", "--launcher ranks, or --on slurm")
    if launcher == "mpirun" and not mpirun_reaches_nodes:
        why = "mpirun would have to log in from the first host to the others and find the same files there"
        return IncompatiblePair(why, "--launcher ranks or --launcher torchrun: this machine starts both on each host")
    if launcher == "mpirun" and environment == "pyxis":
        why = "pyxis containers hold only what srun starts, and mpirun would start the ranks"
        return IncompatiblePair(why, "--launcher srun, or --env enroot")
    return None


def reserved_option(job: Job) -> tuple[str, str] | None:
    """The first launcher option of the user that only Echelon sets, with the Echelon flag to use instead, or empty."""
    if not job.launching.options:
        return None
    ours = load_launcher(job.launcher).reserved_options
    for name in job.launching.options:
        plain = name.replace("_", "-")
        if plain in ours:
            return name, ours[plain]
    return None
