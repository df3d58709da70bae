"""The hosts that a scheduler gave us: which there are, how an agent is started on one, what can be asked of them."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from echelon.errors import EnvironmentProblem
from echelon.job import Job
from echelon.node.channel import Channel
from echelon.node.situation import Loss

MEMBERS = {
    "local": "echelon.node.hosts.rehearsed",
    "slurm": "echelon.node.hosts.slurm",
    "ssh": "echelon.node.hosts.ssh",
    "pbs": "echelon.node.hosts.pbs",
}


@dataclass(frozen=True, kw_only=True)
class Host:
    name: str
    source: str = ""
    """The address that its agent dials from and its ranks meet at; empty for the one that routes to the supervisor."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How the attempt stands with its scheduler."""

    end_at: float | None = None
    """When it will be ended, in seconds since the epoch."""
    taken_back: bool = False
    """The scheduler has put the job back into its queue: another attempt will come without our doing."""


class Unreachable(Exception):  # noqa: N818  an answer, though not a welcome one
    """The scheduler did not answer."""


class Question(Protocol):
    def answer(self) -> Standing | None:
        """None while there is none yet; raises Unreachable."""


class Hosts(Protocol):
    comes_back: bool
    """Whether a host that fell silent can be given an agent again: so for rehearsed ones, not for real ones."""
    early_seconds: float
    """How much too early the scheduler's own notice may come; ours comes on the second."""
    reserve_seconds: float
    """How long before the scheduler ends a job we end it ourselves, for what is to be done after that."""
    requeues_here: bool
    """Whether the next attempt is for this process to start."""
    carried: Mapping[str, str] | None
    """The environment that agents are to be sent; None where whatever starts them brings it along."""
    all: Sequence[Host]

    def gather(self, wake: int) -> None:
        """Whatever must be known of the hosts before anything starts; a signal on `wake` cuts the waiting short."""

    def listen_address(self) -> str | None:
        """The one address of this machine that all hosts can reach; None where agents do not dial."""

    def remarks(self) -> Sequence[str]:
        """What the person who watches should know of the hosts before anything starts."""

    def start(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts an agent there; the process is what holds on to it from here."""

    def connecting(self) -> Sequence[Channel]:
        """Channels that were opened from here and are no agent's yet."""

    def arrivals(self) -> Sequence[Channel]:
        """Those of them behind which an agent has been started by now."""

    def loss(self, process: subprocess.Popen[bytes]) -> Loss:
        """What the end of the process that held on to an agent says about its host."""

    def words_of(self, process: subprocess.Popen[bytes]) -> str | None:
        """What an agent that never came has said, where it could not write it into the run directory."""

    def end(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:
        """For an agent whose channel is closed: what does not leave by itself is ended, with all it has."""

    def tend(self) -> None:
        """Called now and then: what was to end and has not is ended for good."""

    def close(self) -> None:
        """After the last one was ended: returns when nothing of ours is left here."""

    def ask(self) -> Question | None:
        """Asks the scheduler how this attempt stands; None where there is nobody to ask."""

    def requeue(self, lost: Sequence[str]) -> None:
        """Has the scheduler start another attempt, without the hosts that were lost; raises SchedulerError."""


class Dialled:
    """What hosts have in common whose agents dial the supervisor: nothing is opened from here."""

    def gather(self, wake: int) -> None:
        pass

    def remarks(self) -> Sequence[str]:
        return ()

    def connecting(self) -> Sequence[Channel]:
        return ()

    def arrivals(self) -> Sequence[Channel]:
        return ()

    def loss(self, process: subprocess.Popen[bytes]) -> Loss:  # noqa: ARG002  all are asked alike
        return Loss.PROCESS

    def words_of(self, process: subprocess.Popen[bytes]) -> str | None:  # noqa: ARG002  it could, and did
        return None


def hosts_of(job: Job, run_path: Path, environ: Mapping[str, str]) -> Hosts:
    """Raises EchelonError where the environment is not that of the job's scheduler."""
    name = job.scheduler
    if name == "allocation":
        name = "slurm" if environ.get("SLURM_JOB_ID") else "pbs"
    if job.environment == "pyxis" and name != "slurm":
        hint = "--env enroot starts the same images without it"
        raise EnvironmentProblem("pyxis is a part of Slurm, and this is no Slurm job", hint=hint)
    module: Any = importlib.import_module(MEMBERS[name])
    hosts: Hosts = module.hosts(job, run_path, environ)
    return hosts
