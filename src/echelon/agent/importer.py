"""The importer: imports torch once on a machine and forks the starters of all rehearsed nodes."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from echelon.agent.cold_rank import AGENT_SIGNALS
from echelon.agent.starter import serve_agent
from echelon.agent.torch_import import import_torch
from echelon.backends.node_environ import GPU_VARIABLE
from echelon.run_dir import RunDir
from echelon.system import processes
from echelon.system.project import read_runnable_job
from echelon.system.signals import close_signal_pipe, open_signal_pipe, read_signals
from echelon.wire.fds import (
    IMPORTER_ORDERS,
    AgentServed,
    EndStarter,
    ForkStarter,
    ImporterReport,
    KillStarter,
    Ready,
    ServeAgent,
    StarterEnded,
    receive_order,
    send_order,
)
from echelon.wire.node_dir import NodeDir

ALONE_SECONDS = 20.0
"""After the death of the supervisor, agents end their starters in less time."""


def main(owner_fd: int, parent: int, run_path: Path) -> None:
    """Main function of the importer. In a forked rank it returns or raises as the user's script does."""
    processes.die_with_parent(parent)
    os.set_inheritable(owner_fd, False)  # no program that an import starts may keep the link open
    for signum in AGENT_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    trouble = import_torch(read_runnable_job(RunDir(run_path)))
    forked = Importer(socket.socket(fileno=owner_fd)).serve()
    if forked is None:
        os._exit(0)  # finalization of an interpreter with torch takes half a second and has no use
    order, link = forked
    if order.gpus is not None:
        os.environ[GPU_VARIABLE] = order.gpus
    job = read_runnable_job(RunDir(run_path))  # again, because another attempt may have changed it
    serve_agent(socket.socket(fileno=link), order.agent, job, NodeDir(Path(order.node_dir)), trouble)


@dataclass
class Client:
    """An agent, and the starter that was forked for it."""

    link: socket.socket
    starter: int | None = None
    kill_at: float = float("inf")
    is_ending: bool = False
    """The supervisor waits for the end of the starter."""


@dataclass
class Importer:
    owner: socket.socket
    """The link to the supervisor. When it closes, the importer exits after its starters."""
    clients: dict[int, Client] = field(default_factory=dict)
    end_at: float = float("inf")
    wake_pipe: tuple[int, int] = (-1, -1)

    def serve(self) -> tuple[ForkStarter, int] | None:
        """Executes orders until the supervisor and all starters are gone. In a forked starter, returns its order and
        the descriptor of its link to the agent."""
        processes.set_subreaper()
        processes.stay_without_parent()
        self.wake_pipe = open_signal_pipe(signal.SIGCHLD)
        self._report(self.owner, Ready(pid=os.getpid()))
        while self.end_at == float("inf") or (self._starters() and time.monotonic() < self.end_at):
            readable = self._wait()
            read_signals(self.wake_pipe[0])
            self._reap()
            self._kill_late_starters(time.monotonic())
            if self.end_at == float("inf") and self.owner.fileno() in readable:
                self._read_owner()
            for client in [one for one in self.clients.values() if one.link.fileno() in readable]:
                forked = self._read_agent(client)
                if forked is not None:
                    return forked
        processes.kill_descendants(os.getpid())
        return None

    def _starters(self) -> set[int]:
        return {client.starter for client in self.clients.values() if client.starter is not None}

    def _wait(self) -> set[int]:
        poller = select.poll()
        sources = [self.wake_pipe[0], *(client.link.fileno() for client in self.clients.values())]
        if self.end_at == float("inf"):
            sources.append(self.owner.fileno())
        for fd in sources:
            if fd >= 0:
                poller.register(fd, select.POLLIN | select.POLLHUP)
        due = min([self.end_at, *(client.kill_at for client in self.clients.values())])
        timeout = None if due == float("inf") else max(0.0, due - time.monotonic()) * 1000
        return {fd for fd, _ in poller.poll(timeout)}

    def _report(self, link: socket.socket, report: ImporterReport) -> None:
        try:
            send_order(link, report)
        except OSError:
            pass  # the other side is gone

    # Orders

    def _read_owner(self) -> None:
        received = receive_order(self.owner, IMPORTER_ORDERS)
        if received is None:
            self.end_at = time.monotonic() + ALONE_SECONDS
            return
        order, fds = received
        match order:
            case ServeAgent():
                self.clients[order.number] = Client(socket.socket(fileno=fds[0]))
            case EndStarter() if order.number in self.clients:
                client = self.clients[order.number]
                client.is_ending, client.kill_at = True, time.monotonic() + order.seconds
                self._finish_ended_clients()
            case EndStarter():
                self._report(self.owner, AgentServed(number=order.number))

    def _read_agent(self, client: Client) -> tuple[ForkStarter, int] | None:
        """Returns the order and the descriptor in the forked starter."""
        received = receive_order(client.link, IMPORTER_ORDERS)
        if received is None:
            client.link.close()  # its starter notices by itself that the agent is gone
            return None
        order, fds = received
        match order:
            case ForkStarter():
                return self._fork_starter(client, order, fds[0])
            case KillStarter():
                self._kill(client)
        return None

    def _fork_starter(self, client: Client, order: ForkStarter, link: int) -> tuple[ForkStarter, int] | None:
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory: the agent sees that its link closes
            os.close(link)
            return None
        if pid == 0:
            os.setsid()
            close_signal_pipe(self.wake_pipe)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (self.owner, *(other.link for other in self.clients.values())):
                one.close()
            return order, link
        os.close(link)
        client.starter = pid
        return None

    # Ends of starters

    def _reap(self) -> None:
        ended = {child.pid for child in processes.reap_children()}
        clients = [(client.starter, client) for client in self.clients.values() if client.starter in ended]
        if not clients:
            return
        for _, client in clients:
            client.starter = None
        processes.kill_strays(self._starters())
        for pid, client in clients:
            if pid is not None and client.link.fileno() >= 0:
                self._report(client.link, StarterEnded(pid=pid))
        self._finish_ended_clients()

    def _finish_ended_clients(self) -> None:
        for number, client in list(self.clients.items()):
            if client.is_ending and client.starter is None:
                client.link.close()
                del self.clients[number]
                self._report(self.owner, AgentServed(number=number))

    def _kill_late_starters(self, now: float) -> None:
        for client in self.clients.values():
            if now >= client.kill_at:
                client.kill_at = float("inf")
                self._kill(client)

    def _kill(self, client: Client) -> None:
        """Its ranks die with it; other processes below it become strays."""
        if client.starter is not None:
            processes.send_signal(client.starter, signal.SIGKILL)
