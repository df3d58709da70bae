"""The supervisor's agents: started, admitted, heard, told, and ended with all they have."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from echelon.job import Job
from echelon.node import processes
from echelon.node.channel import Channel, ChannelClosed, Doorman
from echelon.node.messages import Downward, Hello, Upward, to_wire, upward
from echelon.node.node_dir import NodeDir
from echelon.node.situation import Loss
from echelon.plan import gpus_of_node

HANDSHAKE_SECONDS = 10.0
MOST_STRANGERS = 32
CLEAN_UP_SECONDS = 3.0
REAP_SECONDS = 5.0
LEAVE_SECONDS = 10.0  # longer than an agent takes to end a starter that does not answer


@dataclass
class Agent:
    node: int
    host: str
    address: str
    process: subprocess.Popen[bytes]
    channel: Channel | None = None
    heard: float = 0.0
    node_dir: Path | None = None


@dataclass
class Agents:
    """One rehearsed node is one subprocess here, with a loopback address of its own."""

    job: Job
    run_path: Path
    attempt: int
    token: bytes
    listener: socket.socket
    agents: dict[int, Agent] = field(default_factory=dict)
    doormen: dict[int, tuple[Doorman, float]] = field(default_factory=dict)
    """Strangers at the door, and newcomers who have yet to say which node they are; with their deadlines."""
    newcomers: dict[int, tuple[Channel, float]] = field(default_factory=dict)

    def start(self, node: int) -> None:
        host, address = f"node{node}", f"127.0.0.{node + 1}"
        here, port = self.listener.getsockname()[:2]
        argv = [
            sys.executable, "-I", sys.argv[0], "agent", str(self.run_path), str(self.attempt), str(node), host, address,
            here, str(port),
        ]  # fmt: skip
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self._gpu_variables(node)},
            start_new_session=True,
        )
        self.agents[node] = Agent(node, host, address, process, heard=time.monotonic())

    def _gpu_variables(self, node: int) -> dict[str, str]:
        per_node = self.job.resources.gpus_per_node
        if per_node == 0:
            return {}
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        everything = range(per_node * self.job.resources.all_nodes)
        visible = tuple(listed.split(",")) if listed else tuple(map(str, everything))
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus_of_node(visible, node, per_node))}

    def tell(self, node: int, message: Downward) -> None:
        channel = self.agents[node].channel
        if channel is not None:
            channel.send(to_wire(message))

    def everyone(self) -> list[int]:
        return [node for node, agent in self.agents.items() if agent.channel is not None]

    def flush(self) -> None:
        for agent in self.agents.values():
            if agent.channel is not None:
                agent.channel.flush()

    # Listening

    def sources(self) -> list[int]:
        channels = [agent.channel.fileno() for agent in self.agents.values() if agent.channel is not None]
        return [self.listener.fileno(), *channels, *self.doormen, *self.newcomers]

    def hear(self, readable: set[int]) -> tuple[list[tuple[int, Upward]], list[int]]:
        """What the agents behind these descriptors said, and which of them hung up."""
        said: list[tuple[int, Upward]] = []
        gone: list[int] = []
        if self.listener.fileno() in readable:
            self._open_the_door()
        said += self._admit(readable)
        for node, agent in list(self.agents.items()):
            if agent.channel is None or agent.channel.fileno() not in readable:
                continue
            try:
                wires = agent.channel.receive()
                agent.heard = time.monotonic()
                said += [(node, upward(wire)) for wire in wires]
            except (ChannelClosed, ValueError):
                gone.append(node)
        return said, gone

    def _open_the_door(self) -> None:
        try:
            sock, _ = self.listener.accept()
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
        agent.channel, agent.heard, agent.node_dir = channel, time.monotonic(), Path(hello.node_dir)
        return [(hello.node, message) for message in messages]

    # Losing and ending

    def silent(self, seconds: float) -> list[tuple[int, Loss]]:
        """Those that died, and those that have said nothing for too long."""
        now = time.monotonic()
        lost = []
        for node, agent in self.agents.items():
            if agent.process.poll() is not None:
                lost.append((node, Loss.PROCESS))
            elif agent.channel is not None and now - agent.heard > seconds:
                lost.append((node, Loss.HOST))
        return lost

    def end(self, node: int) -> None:
        """The agent first: its starter notices, ends the ranks and cleans up. What has not gone by then is killed."""
        agent = self.agents.pop(node, None)
        if agent is None:
            return
        if agent.channel is not None:
            agent.channel.close()
        agent.process.kill()
        _wait(agent.process, REAP_SECONDS)
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while (orphans := self._adopted()) and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in orphans:
            for member in (pid, *processes.descendants(pid)):
                processes.send_signal(member, signal.SIGKILL)
        if agent.node_dir is not None:
            NodeDir(agent.node_dir).remove()

    def _adopted(self) -> list[int]:
        """What lost its parent when an agent died is our child now; those of them that still live."""
        known = {agent.process.pid for agent in self.agents.values()}
        orphans = [pid for pid in processes.children(os.getpid()) if pid not in known]
        return [pid for pid in orphans if not _reap(pid)]

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


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
