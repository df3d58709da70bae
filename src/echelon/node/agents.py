"""The supervisor's agents: started, admitted, heard, told, and ended with all they have."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from echelon.job import Job
from echelon.launchers import Scope, scope_of
from echelon.node.channel import Channel, ChannelClosed, Doorman, interests
from echelon.node.hosts import Hosts
from echelon.node.inside import inside, last_lines, refusal_of
from echelon.node.messages import Downward, Environment, Hello, Leave, Start, Trouble, Upward, to_wire, upward
from echelon.node.situation import Loss
from echelon.plan import Placement
from echelon.run_dir import RunDir

HANDSHAKE_SECONDS = 10.0
MOST_STRANGERS = 32
ANY = "-"  # no word of an agent's is empty: not everything that leads into a container would hand it on
LEAVE_SECONDS = 10.0  # longer than an agent takes to end a starter that does not answer


@dataclass
class Agent:
    process: subprocess.Popen[bytes]
    channel: Channel | None = None
    address: str = ""
    heard: float = 0.0
    node_dir: Path | None = None


@dataclass
class Agents:
    """One for each node, by its number; how one is started and ended is the business of its hosts."""

    job: Job
    hosts: Hosts
    run_path: Path
    attempt: int
    token: bytes
    listener: socket.socket | None
    """None where agents do not dial."""
    agents: dict[int, Agent] = field(default_factory=dict)
    doormen: dict[int, tuple[Doorman, float]] = field(default_factory=dict)
    """Strangers at the door, and newcomers who have yet to say which node they are; with their deadlines."""
    newcomers: dict[int, tuple[Channel, float]] = field(default_factory=dict)

    def start(self, node: int) -> None:
        host = self.hosts.all[node]
        here, port = ("", 0) if self.listener is None else self.listener.getsockname()[:2]
        outside = not self.job.is_enclosed or scope_of(self.job) is Scope.JOB  # there its ranks alone are inside
        python = sys.executable if outside else self.job.python
        argv = [
            python, "-I", sys.argv[0], "agent", str(self.run_path), str(self.attempt), str(node), host.name,
            host.source or ANY, here, str(port), *(() if self.hosts.carried is None else ("environment-follows",)),
        ]  # fmt: skip
        argv = argv if outside else inside(self.job, self.run_path, argv, self._words(node))
        self.agents[node] = Agent(self.hosts.start(node, argv), heard=time.monotonic())

    def start_message(self, members: Sequence[int], placement: Placement) -> Start:
        """The first node is told of all the others where it starts the ranks of them all."""
        if scope_of(self.job) is not Scope.JOB or placement.node_rank != 0:
            return Start(placement=placement)
        hosts = tuple(self.hosts.all[node].name for node in members)
        return Start(placement=placement, hosts=hosts, folders=tuple(str(self.agents[n].node_dir) for n in members))

    def _words(self, node: int) -> Path:
        return RunDir(self.run_path).attempt(self.attempt).node_words(self.hosts.all[node].name)

    def tell(self, node: int, message: Downward) -> None:
        channel = self.agents[node].channel
        if channel is not None:
            channel.send(to_wire(message))

    def everyone(self) -> list[int]:
        return [node for node, agent in self.agents.items() if agent.channel is not None]

    def flush(self) -> None:
        for channel in self._channels():
            channel.flush()

    def _channels(self) -> list[Channel]:
        joined = [agent.channel for agent in self.agents.values() if agent.channel is not None]
        return [*joined, *(channel for channel, _ in self.newcomers.values())]

    # Listening

    def interests(self) -> dict[int, int]:
        """The descriptors to poll, and for what."""
        doors = [self.listener.fileno()] if self.listener is not None else []
        events = dict.fromkeys((*doors, *self.doormen), select.POLLIN | select.POLLHUP)
        return events | interests((*self._channels(), *self.hosts.connecting()))

    def hear(self, readable: set[int]) -> tuple[list[tuple[int, Upward]], list[tuple[int, Loss]]]:
        """What the agents behind these descriptors said, and which of them hung up."""
        said: list[tuple[int, Upward]] = []
        gone: list[tuple[int, Loss]] = []
        if self.listener is not None and self.listener.fileno() in readable:
            self._open_the_door(self.listener)
        for channel in self.hosts.arrivals():
            patience = self.job.policies.join_timeout.total_seconds()
            self.newcomers[channel.fileno()] = (channel, time.monotonic() + patience)
        said += self._admit(readable)
        for node, agent in list(self.agents.items()):
            if agent.channel is None or agent.channel.fileno() not in readable:
                continue
            try:
                wires = agent.channel.receive()
                agent.heard = time.monotonic() if wires else agent.heard
                said += [(node, upward(wire)) for wire in wires]
            except (ChannelClosed, ValueError):
                gone.append((node, self.hosts.loss(agent.process)))
        return said, gone

    def _open_the_door(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        if len(self.doormen) + len(self.newcomers) >= MOST_STRANGERS + self.job.resources.all_nodes:
            sock.close()  # a crowd of strangers must not use up our descriptors
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.doormen[sock.fileno()] = (Doorman(sock, self.token), time.monotonic() + HANDSHAKE_SECONDS)
        except OSError:
            sock.close()

    def _admit(self, readable: set[int]) -> list[tuple[int, Upward]]:
        """Strangers that prove themselves become newcomers; newcomers that say who they are become agents."""
        for fd, (doorman, deadline) in list(self.doormen.items()):
            try:
                channel = doorman.admit() if fd in readable else None
                late = channel is None and time.monotonic() > deadline
            except ChannelClosed:
                channel, late = None, True
            if late:
                doorman.sock.close()
            if late or channel is not None:
                del self.doormen[fd]
            if channel is not None:
                self.newcomers[fd] = (channel, deadline)
        return self._introduce()

    def _introduce(self) -> list[tuple[int, Upward]]:
        said: list[tuple[int, Upward]] = []
        for fd, (channel, deadline) in list(self.newcomers.items()):
            try:
                messages = [upward(wire) for wire in channel.receive()]
                done = bool(messages) or time.monotonic() > deadline
            except (ChannelClosed, ValueError):
                messages, done = [], True
            if done:
                del self.newcomers[fd]
                said += self._welcome(channel, messages)
        return said

    def _welcome(self, channel: Channel, messages: list[Upward]) -> list[tuple[int, Upward]]:
        """The first message says which node this is. A place that is taken is not given away."""
        hello = messages[0] if messages else None
        agent = self.agents.get(hello.node) if isinstance(hello, Hello) else None
        if agent is None or agent.channel is not None or not isinstance(hello, Hello):
            channel.close()
            return []
        agent.channel, agent.heard = channel, time.monotonic()
        agent.address, agent.node_dir = hello.address, Path(hello.node_dir)
        if self.hosts.carried is not None:
            channel.send(to_wire(Environment(variables=self.hosts.carried)))
        return [(hello.node, message) for message in messages]

    # Losing and ending

    def refused(self) -> list[tuple[int, Trouble]]:
        """Those that will never come, for their node could not be taken into the environment."""
        found = ((node, self._refusal(node, agent)) for node, agent in self.agents.items())
        return [(node, trouble) for node, trouble in found if trouble is not None]

    def _refusal(self, node: int, agent: Agent) -> Trouble | None:
        code = agent.process.poll()
        if not self.job.is_enclosed or agent.channel is not None or code is None:
            return None
        words = self.hosts.words_of(agent.process)
        try:
            words = self._words(node).read_text(errors="replace")
        except OSError:
            pass  # it was taken away when the command began, or this node does not see the run directory
        return refusal_of(self.job.environment, code, words, last_lines(RunDir(self.run_path).job_output))

    def silent(self, seconds: float) -> list[tuple[int, Loss]]:
        """Those that died before they came, and those that have said nothing for too long."""
        now = time.monotonic()
        lost = []
        for node, agent in self.agents.items():
            if agent.channel is None and agent.process.poll() is not None and self._refusal(node, agent) is None:
                lost.append((node, self.hosts.loss(agent.process)))
            elif agent.channel is not None and now - agent.heard > seconds:
                lost.append((node, Loss.HOST))
        return lost

    def hears_another_host(self, doubted: set[int]) -> bool:
        """Whether the network still brings us word from anywhere but here."""
        here = None if self.listener is None else self.listener.getsockname()[0]
        others = [self.agents[node] for node in self.everyone() if node not in doubted]
        return any(agent.address != here for agent in others)

    def end(self, node: int) -> None:
        """An agent leaves when its channel is closed; the hosts see to those that do not."""
        agent = self.agents.pop(node, None)
        if agent is None:
            return
        if agent.channel is not None:
            agent.channel.send(to_wire(Leave()))
            agent.channel.close()
        self.hosts.end(agent.process, agent.node_dir)

    def dismiss(self) -> None:
        """The end of its channel tells an agent to leave; those that do not are ended."""
        for node, agent in list(self.agents.items()):
            if agent.channel is None:
                self.end(node)
            else:
                agent.channel.close()
                agent.channel = None
        deadline = time.monotonic() + LEAVE_SECONDS
        for agent in self.agents.values():
            _wait(agent.process, max(0.0, deadline - time.monotonic()))
        for node in list(self.agents):
            self.end(node)
        self.hosts.close()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
