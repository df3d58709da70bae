"""The agents of a supervisor: starts them, exchanges messages with them, detects losses and ends them."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from echelon.backends.hosts import Hosts
from echelon.environments.node_script import entry_problem, output_tail, wrap_command
from echelon.environments.pyxis import Retries, retry_warning
from echelon.job import Job
from echelon.launchers import Scope, launcher_scope
from echelon.placement import Placement
from echelon.run_dir import RunDir
from echelon.supervisor.pending_connections import PendingConnections
from echelon.supervisor.state import CheckNodes, StartRanks
from echelon.wire.channel import Channel, ChannelClosed, poll_events, store_key
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import (
    AgentMessage,
    CheckNode,
    Hello,
    Shutdown,
    Start,
    SupervisorEnviron,
    SupervisorMessage,
    parse_agent_message,
    to_wire,
)
from echelon.wire.reports import FatalNodeProblem

MAX_UNKNOWN_CONNECTIONS = 32
NO_ARGUMENT = "-"  # stands for an empty argument: some container commands drop empty arguments
PREFLIGHT = -1  # stands for a generation: the key of the check is none that ranks use
EXIT_SECONDS = 10.0  # longer than an agent takes to end a starter that does not answer


@dataclass
class Agent:
    process: subprocess.Popen[bytes]
    channel: Channel | None = None
    address: str = ""
    last_message_at: float = 0.0
    node_dir: Path | None = None
    retry_at: float | None = None


@dataclass
class Agents:
    """The agents by node number, one per node. `hosts` starts and ends their processes."""

    job: Job
    hosts: Hosts
    run_path: Path
    attempt: int
    token: bytes
    listener: socket.socket | None
    """None if agents do not connect over TCP."""
    agents: dict[int, Agent] = field(default_factory=dict)
    pending: PendingConnections = field(init=False)
    retries: dict[int, Retries] = field(default_factory=dict)
    warn: Callable[[str], None] = lambda _text: None
    seconds_left: float = float("inf")
    """Seconds until the end of the attempt."""

    def __post_init__(self) -> None:
        limit = MAX_UNKNOWN_CONNECTIONS + self.job.resources.all_nodes
        self.pending = PendingConnections(token=self.token, limit=limit)

    def start(self, node: int) -> None:
        self.retries[node] = Retries(self.job, time.monotonic() + self.job.policies.join_timeout.total_seconds())
        self._start(node)

    def _start(self, node: int) -> None:
        host = self.hosts.all[node]
        address, port = ("", 0) if self.listener is None else self.listener.getsockname()[:2]
        is_outside = not self.job.is_enclosed or launcher_scope(self.job) is Scope.JOB  # then only its ranks are inside
        python = sys.executable if is_outside else self.job.python
        argv = [python, "-I", sys.argv[0], "agent", str(self.run_path), str(self.attempt), str(node), host.name]
        argv += [host.source or NO_ARGUMENT, address, str(port)]
        if self.hosts.agent_environ is not None:
            argv.append("environ-follows")
        argv = argv if is_outside else wrap_command(self.job, self.run_path, argv, self._entry_errors_path(node))
        self.agents[node] = Agent(self.hosts.start_agent(node, argv), last_message_at=time.monotonic())

    def start_ranks(self, run_id: str, start: StartRanks) -> None:
        """Sends Start to every member of the generation."""
        bound = start.bound
        for node_rank, node in enumerate(start.members):
            placement = Placement(
                run_id=run_id,
                attempt=self.attempt,
                generation=bound.generation,
                node_rank=node_rank,
                nodes=len(start.members),
                procs_per_node=self.job.resources.procs_per_node,
                main_address=start.address,
                main_port=bound.port,
                store_is_up=bound.store_is_up,
                max_restarts=self.job.policies.restarts,
                launcher_port=bound.launcher_port,
                rejected_checkpoint=start.rejected_checkpoint,
            )
            self.send(node, self._start_message(start.members, placement))

    def check_nodes(self, check: CheckNodes) -> None:
        """Sends CheckNode, with a key for this check alone."""
        for node in check.nodes:
            message = CheckNode(
                rank=check.order.index(node),
                size=len(check.order),
                address=check.address,
                port=check.port,
                key=store_key(self.token, self.attempt, PREFLIGHT),
            )
            self.send(node, message)

    def _start_message(self, members: Sequence[int], placement: Placement) -> Start:
        """Includes the folders of all nodes if the first node starts the ranks of all nodes."""
        placement = replace(placement, store_key=store_key(self.token, self.attempt, placement.generation))
        hosts = tuple(self.hosts.all[node].name for node in members)
        if launcher_scope(self.job) is not Scope.JOB or placement.node_rank != 0:
            return Start(placement=placement, hosts=hosts)
        return Start(placement=placement, hosts=hosts, folders=tuple(str(self.agents[n].node_dir) for n in members))

    def _entry_errors_path(self, node: int) -> Path:
        return RunDir(self.run_path).attempt(self.attempt).entry_errors(self.hosts.all[node].name)

    def send(self, node: int, message: SupervisorMessage) -> None:
        channel = self.agents[node].channel
        if channel is not None:
            channel.send(to_wire(message))

    def connected_nodes(self) -> list[int]:
        return [node for node, agent in self.agents.items() if agent.channel is not None]

    def flush(self) -> None:
        for channel in self._channels():
            channel.flush()

    def _channels(self) -> list[Channel]:
        joined = [agent.channel for agent in self.agents.values() if agent.channel is not None]
        return [*joined, *self.pending.channels()]

    # Receiving

    def poll_events(self) -> dict[int, int]:
        """The descriptors to poll, each with its poll events."""
        listeners = [self.listener.fileno()] if self.listener is not None else []
        events = dict.fromkeys((*listeners, *self.pending.handshakes), select.POLLIN | select.POLLHUP)
        return events | poll_events((*self._channels(), *self.hosts.pending_channels()))

    def receive(self, readable: set[int]) -> tuple[list[tuple[int, AgentMessage]], list[tuple[int, Loss]]]:
        """Messages from the agents with these descriptors, and the agents that closed their channel."""
        messages: list[tuple[int, AgentMessage]] = []
        closed: list[tuple[int, Loss]] = []
        if self.listener is not None and self.listener.fileno() in readable:
            self.pending.accept(self.listener)
        for channel in self.hosts.new_agent_channels():
            self.pending.add_channel(channel, self.job.policies.join_timeout.total_seconds())
        for channel, first_messages in self.pending.receive(readable):
            messages += self._assign_channel(channel, first_messages)
        for node, agent in list(self.agents.items()):
            if agent.channel is None or agent.channel.fileno() not in readable:
                continue
            try:
                wires = agent.channel.receive()
                agent.last_message_at = time.monotonic() if wires else agent.last_message_at
                messages += [(node, parse_agent_message(wire)) for wire in wires]
            except (ChannelClosed, ValueError):
                closed.append((node, self.hosts.classify_loss(agent.process)))
        return messages, closed

    def _assign_channel(self, channel: Channel, messages: list[AgentMessage]) -> list[tuple[int, AgentMessage]]:
        """Assigns the channel to the node that its first message, Hello, names.

        Closes the channel if the first message is no Hello, or if the node is unknown or already connected.
        """
        hello = messages[0] if messages else None
        agent = self.agents.get(hello.node) if isinstance(hello, Hello) else None
        if agent is None or agent.channel is not None or not isinstance(hello, Hello):
            channel.close()
            return []
        agent.channel, agent.last_message_at = channel, time.monotonic()
        agent.address, agent.node_dir = hello.address, Path(hello.node_dir)
        if self.hosts.agent_environ is not None:
            channel.send(to_wire(SupervisorEnviron(variables=self.hosts.agent_environ)))
        return [(hello.node, message) for message in messages]

    # Losses and ends

    def restart_timeouts(self, now: float, lost: float) -> None:
        """Starts the heartbeat timeout of every agent again; moves deadlines by `lost` seconds."""
        for agent in self.agents.values():
            agent.last_message_at = now
        self.pending.postpone_deadlines(lost)

    def failed_starts(self) -> list[tuple[int, FatalNodeProblem]]:
        """Agents that cannot start because their environment failed.

        Restarts an agent, until --join-timeout, if another job may be creating its container.
        """
        failed_starts = []
        for node, agent in list(self.agents.items()):
            if agent.retry_at is not None and time.monotonic() >= agent.retry_at:
                self._start(node)
            elif (problem := self._start_problem(node, agent)) is not None:
                agent.retry_at = self._retry_at(node, problem)
                failed_starts += [(node, problem)] if agent.retry_at is None else []
        return failed_starts

    def _retry_at(self, node: int, problem: FatalNodeProblem) -> float | None:
        retries, output = self.retries[node], output_tail(RunDir(self.run_path).job_output)
        at = retries.next_at(time.monotonic(), problem, output)
        if at is not None and retries.count == 1:
            self.warn(retry_warning(self.job, self.hosts.all[node].name, problem))
        return at

    def _start_problem(self, node: int, agent: Agent) -> FatalNodeProblem | None:
        code = agent.process.poll()
        if agent.channel is not None or code is None or agent.retry_at is not None:
            return None
        return self._entry_problem(node, agent, code) or self.hosts.start_problem(agent.process)

    def _entry_problem(self, node: int, agent: Agent, code: int) -> FatalNodeProblem | None:
        if not self.job.is_enclosed:
            return None
        errors = self.hosts.agent_output(agent.process)
        try:
            errors = self._entry_errors_path(node).read_text(errors="replace")
        except OSError:
            pass  # the file was removed when the command began, or this node does not see the run directory
        return entry_problem(self.job.environment, code, errors, output_tail(RunDir(self.run_path).job_output))

    def loss_reason(self, node: int) -> Fault | None:
        return self.hosts.agent_fault(self.agents[node].process) if node in self.agents else None

    def lost_agents(self, seconds: float) -> list[tuple[int, Loss]]:
        """Agents that ended before they connected, and agents without a heartbeat for `seconds`."""
        now = time.monotonic()
        lost = []
        for node, agent in self.agents.items():
            if agent.retry_at is not None:
                continue
            if agent.channel is None and agent.process.poll() is not None and self._start_problem(node, agent) is None:
                lost.append((node, self.hosts.classify_loss(agent.process)))
            elif agent.channel is not None and now - agent.last_message_at > seconds:
                lost.append((node, Loss.HOST))
        return lost

    def another_host_responds(self, suspected: set[int]) -> bool:
        """Whether an agent on another host still sends heartbeats, apart from the nodes in `suspected`."""
        address = None if self.listener is None else self.listener.getsockname()[0]
        others = [self.agents[node] for node in self.connected_nodes() if node not in suspected]
        return any(agent.address != address for agent in others)

    def end(self, node: int) -> None:
        """Sends Shutdown and closes the channel. `hosts` ends an agent that does not exit."""
        agent = self.agents.pop(node, None)
        if agent is None:
            return
        if agent.channel is not None:
            agent.channel.send(to_wire(Shutdown()))
            agent.channel.close()
        self.hosts.end_agent(agent.process, agent.node_dir)

    def end_all(self) -> None:
        """Closes all channels, so that agents exit. Ends the agents that have not exited after EXIT_SECONDS."""
        self.hosts.container_removal_seconds = min(self.hosts.container_removal_seconds, self.seconds_left)
        self._close_connections()
        for node, agent in list(self.agents.items()):
            if agent.channel is None:
                self.end(node)
            agent.channel = None
        deadline = time.monotonic() + EXIT_SECONDS
        for agent in self.agents.values():
            with suppress(subprocess.TimeoutExpired):
                agent.process.wait(max(0.0, deadline - time.monotonic()))
        for node in list(self.agents):
            self.end(node)
        self.hosts.close()

    def _close_connections(self) -> None:
        """Closes the listener too, so that an agent that starts later does not wait for an answer."""
        for agent in self.agents.values():
            if agent.channel is not None:
                agent.channel.close()
        self.pending.close()
        if self.listener is not None:
            self.listener.close()
