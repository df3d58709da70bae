"""The hosts of one attempt: their names, and how to start, watch and end an agent on each."""

from __future__ import annotations

import abc
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from echelon.backends import backend
from echelon.errors import EnvironmentProblem
from echelon.job import Job
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.wire.channel import Channel
from echelon.wire.faults import Fault, Loss
from echelon.wire.reports import FatalNodeProblem


@record
class Host:
    name: str
    source: str = ""
    """The address from which the agent connects and at which the ranks meet. Empty: the address that routes to the
    supervisor."""


@record
class SchedulerView:
    """The scheduler's view of the attempt."""

    end_at: float | None = None
    """When the scheduler will end it, in seconds since the epoch."""
    is_requeued: bool = False
    """The scheduler has requeued the job, so another attempt starts without a request from echelon."""


class Unreachable(Exception):  # noqa: N818  an expected result, handled like an answer
    """The scheduler did not answer."""


class SchedulerQuery(Protocol):
    def result(self) -> SchedulerView | None:
        """None while there is no answer yet. Raises Unreachable."""


class Hosts(abc.ABC):
    """The hosts of one attempt, as a backend returns them."""

    can_restart_lost_hosts: bool = False
    """Whether an agent can be started again on a lost host: true for rehearsed hosts, false for real hosts."""
    early_notice_seconds: float = 0.0
    """How many seconds the scheduler's notice may be early. The notice of echelon is exact to the second."""
    reserve_seconds: float = 0.0
    """How many seconds before the scheduler ends the job echelon ends it, to leave time for the steps that follow."""
    container_removal_seconds: float = 0.0
    """How many seconds the process that started an agent may outlive it, to remove the agent's container."""
    requeues_in_process: bool = False
    """Whether this process starts the next attempt."""
    agent_environ: Mapping[str, str] | None = None
    """The variables to send to agents. None if the program that starts the agents passes them."""
    all: Sequence[Host]
    """All hosts, with the spare hosts last."""

    @abc.abstractmethod
    def probe(self, wake_fd: int) -> None:
        """Collects facts about the hosts before any agent starts. A readable `wake_fd` ends the wait."""

    @abc.abstractmethod
    def listen_address(self) -> str | None:
        """The address of this machine that all hosts can reach. None if agents do not connect to it."""

    @abc.abstractmethod
    def remarks(self) -> Sequence[str]:
        """Remarks about the hosts for the user, printed before any agent starts."""

    @abc.abstractmethod
    def start_agent(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts an agent on a node. Returns the local process that represents the agent."""

    @abc.abstractmethod
    def pending_channels(self) -> Sequence[Channel]:
        """Channels that this process opened and that have no agent yet."""

    @abc.abstractmethod
    def new_agent_channels(self) -> Sequence[Channel]:
        """Channels of `pending_channels` whose agent has started since the last call."""

    @abc.abstractmethod
    def classify_loss(self, process: subprocess.Popen[bytes]) -> Loss:
        """What was lost, judged by the end of the process that started the agent."""

    @abc.abstractmethod
    def agent_fault(self, process: subprocess.Popen[bytes]) -> Fault | None:
        """Why an agent was ended, if the program that started it printed a reason other than a lost host."""

    @abc.abstractmethod
    def start_problem(self, process: subprocess.Popen[bytes]) -> FatalNodeProblem | None:
        """Why the program that starts an agent failed. None if a restart may help."""

    @abc.abstractmethod
    def agent_output(self, process: subprocess.Popen[bytes]) -> str | None:
        """The output of an agent that never connected, if it could not write to the run directory."""

    @abc.abstractmethod
    def end_agent(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:
        """Ends an agent whose channel is closed, with all its processes, if it does not exit itself."""

    @abc.abstractmethod
    def end_late_agents(self) -> None:
        """Called periodically. Kills agents that were to end and are past their deadline."""

    @abc.abstractmethod
    def close(self) -> None:
        """Called after the last agent was ended. Returns when no process that this object started is left."""

    @abc.abstractmethod
    def start_query(self) -> SchedulerQuery | None:
        """Starts a query for the scheduler's view of this attempt. None if the backend has no scheduler."""

    @abc.abstractmethod
    def requeue(self, lost_hosts: Sequence[str]) -> None:
        """Requests another attempt without the lost hosts. Raises SchedulerError."""


class HostsWithoutFaultReports(Hosts):
    """Hosts whose start program does not report why an agent ended."""

    def agent_fault(self, process: subprocess.Popen[bytes]) -> Fault | None:  # noqa: ARG002
        return None

    def start_problem(self, process: subprocess.Popen[bytes]) -> FatalNodeProblem | None:  # noqa: ARG002
        return None


class ConnectBackHosts(HostsWithoutFaultReports):
    """Hosts whose agents connect to the supervisor. The supervisor opens no connections."""

    def probe(self, wake_fd: int) -> None:
        pass

    def remarks(self) -> Sequence[str]:
        return ()

    def pending_channels(self) -> Sequence[Channel]:
        return ()

    def new_agent_channels(self) -> Sequence[Channel]:
        return ()

    def classify_loss(self, process: subprocess.Popen[bytes]) -> Loss:  # noqa: ARG002  the same signature for all hosts
        return Loss.PROCESS

    def agent_output(self, process: subprocess.Popen[bytes]) -> str | None:  # noqa: ARG002  the agent could write to the run directory
        return None


def attempt_hosts(job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
    """Raises EchelonError if `environ` is not from a job of the job's backend."""
    ours = backend(job.scheduler)
    if job.environment == "pyxis" and not ours.uses_srun(environ):
        hint = "--env enroot starts the same images without it"
        raise EnvironmentProblem("pyxis is a Slurm plugin, but this is not a Slurm job", hint=hint)
    return ours.hosts(job, run_dir, environ)
