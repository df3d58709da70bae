"""The starter: imports torch once and forks the ranks of its node."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from echelon.agent import cold_rank, worker_server
from echelon.agent.notices import shield_usr1_handlers
from echelon.agent.rank_environ import apply_changes
from echelon.agent.rendezvous import allow_own_rendezvous, run_store
from echelon.agent.run_script import run_as_main
from echelon.agent.torch_import import import_torch, reseed_random
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.system import processes
from echelon.system.project import read_runnable_job
from echelon.system.signals import close_signal_pipe, open_signal_pipe
from echelon.system.suspension import POLL_SECONDS, AgentFollower
from echelon.wire.fds import (
    STARTER_ORDERS,
    KillLeftovers,
    LauncherEnded,
    LeftoversKilled,
    OpenStore,
    RankEnded,
    Ready,
    Report,
    RunLauncher,
    Signal,
    StartRank,
    Workers,
    receive_order,
    send_order,
)
from echelon.wire.node_dir import NodeDir
from echelon.wire.reports import FatalNodeProblem, Started, StoreDied

KILL_SECONDS = 5.0
ForkOrder = StartRank | OpenStore | RunLauncher


def main(link_fd: int, parent: int, run_path: Path, node_path: Path) -> None:
    """Main function of the starter. In a forked rank it returns or raises as the user's script does."""
    processes.die_with_parent(parent)
    for signum in cold_rank.AGENT_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    job = read_runnable_job(RunDir(run_path))
    trouble = import_torch(job) if job.warm else None
    serve_agent(socket.socket(fileno=link_fd), parent, job, NodeDir(node_path), trouble)


def serve_agent(link: socket.socket, agent: int, job: Job, node_dir: NodeDir, trouble: FatalNodeProblem | None) -> None:
    """Serves the agent with this pid after the import, which may have failed. Returns only in a forked rank."""
    if trouble is not None:
        _report_trouble(link, trouble)
    starter = Starter(link=link, job=job, node_dir=node_dir, suspension=AgentFollower(agent, os.getpid()))
    forked = starter.serve()
    if forked is None:
        os._exit(0)  # finalization of an interpreter with torch takes half a second and has no use
    if trouble is not None:
        os._exit(1)  # the report above ends the run; tracebacks of all ranks would hide it
    _execute_order(job, *forked, node_dir)


def _report_trouble(link: socket.socket, trouble: FatalNodeProblem) -> None:
    try:
        send_order(link, trouble, wait=True)
    except OSError:
        pass  # the agent is gone


@dataclass
class Starter:
    link: socket.socket
    job: Job
    node_dir: NodeDir
    suspension: AgentFollower
    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Pid and generation of each living rank."""
    store: tuple[int, int] | None = None
    """Pid and generation of the rendezvous store, if it runs on this node."""
    launcher: int | None = None
    """Pid of the launcher, if a launcher starts the ranks."""
    launcher_seconds: float = 0.0
    """Seconds that the launcher has to exit by itself."""
    wake_pipe: tuple[int, int] = (-1, -1)
    """Both ends of the pipe that SIGCHLD writes to. Set by `serve`."""

    def serve(self) -> tuple[ForkOrder, int] | None:
        """Executes orders until the agent is gone. In a forked process, returns its order and descriptor."""
        processes.set_subreaper()
        processes.stay_without_parent()
        self.wake_pipe = open_signal_pipe(signal.SIGCHLD)
        wake, _ = self.wake_pipe
        self._send_report(Ready(pid=os.getpid()))
        while True:
            readable, _, _ = select.select([self.link.fileno(), wake], [], [], POLL_SECONDS)
            if wake in readable:
                os.read(wake, 4096)
            self.suspension.follow()
            self._reap()
            if self.link.fileno() not in readable:
                continue
            received = receive_order(self.link, STARTER_ORDERS)
            if received is None:
                self._clean_up()
                return None
            order, fds = received
            match order:
                case StartRank() | OpenStore() | RunLauncher():
                    if self._fork_for(order, fds[0]):
                        return order, fds[0]
                case Signal():
                    self._signal(order)
                case Workers():
                    self.suspension.workers = order.workers
                case KillLeftovers():
                    self._kill_leftovers(order.launcher_seconds)
                    self._send_report(LeftoversKilled(generation=order.generation))

    def _send_report(self, report: Report) -> None:
        try:
            send_order(self.link, report, wait=True)  # the agent never waits for the starter, so this cannot deadlock
        except OSError:
            pass  # the agent is gone; the next receive returns None

    def _fork_for(self, order: ForkOrder, fd: int) -> bool:
        """Returns true in the forked process, which executes the order and keeps the descriptor."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            processes.die_with_parent(parent)
            close_signal_pipe(self.wake_pipe)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.link.close()
            return True
        os.close(fd)
        match order:
            case StartRank():
                self.ranks[order.rank] = (pid, order.generation)
                self._send_report(Started(generation=order.generation, rank=order.rank, pid=pid))
            case OpenStore():
                self.store = (pid, order.generation)
            case RunLauncher():
                self.launcher, self.launcher_seconds = pid, order.launcher_seconds
        return False

    def _signal(self, order: Signal) -> None:
        send = processes.send_group_signal if order.group else processes.send_signal
        for rank in order.ranks:
            if rank in self.ranks:  # not reaped yet, so the pid is still valid
                send(self.ranks[rank][0], order.signum)

    def _reap(self) -> None:
        for ended in processes.reap_children():
            self._report(ended)

    def _report(self, ended: processes.EndedChild) -> None:
        pid, code = ended.pid, ended.code
        if self.store is not None and pid == self.store[0]:
            self._send_report(StoreDied(generation=self.store[1]))
            self.store = None
        if pid == self.launcher:
            self.launcher = None
            self._send_report(LauncherEnded(code=code))
        for rank, (known, generation) in list(self.ranks.items()):
            if known == pid:
                del self.ranks[rank]
                end = RankEnded(generation=generation, rank=rank, code=code, time=time.time(), peak=ended.peak)
                self._send_report(end)

    def _kill_leftovers(self, launcher_seconds: float) -> None:
        """Kills every process that the ranks left behind. Repeats, because children of a killed process are reparented
        to the starter.

        Before that, a launcher has at most `launcher_seconds` to exit by itself: it cleans up on other hosts, and ranks
        there may still be within their grace.
        """
        self.store = None  # its end is expected, so it is not reported
        deadline = time.monotonic() + launcher_seconds
        while self.launcher is not None and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            processes.kill_descendants(os.getpid())
            self._reap()
            if not processes.children(os.getpid()):
                return
            time.sleep(0.002)

    def _clean_up(self) -> None:
        self._kill_leftovers(self.launcher_seconds)
        self.node_dir.remove()


def _execute_order(job: Job, order: ForkOrder, fd: int, node_dir: NodeDir) -> None:
    match order:
        case OpenStore():
            run_store(order, fd)
        case RunLauncher():
            cold_rank.connect_output(fd)
            cold_rank.run_launcher(order)
        case StartRank():
            cold_rank.connect_output(fd)
            _run_rank(job, order, node_dir)


def _run_rank(job: Job, order: StartRank, node_dir: NodeDir) -> None:
    cold_rank.restore_signals()
    os.environ.update(order.env)
    apply_changes(order.changes, os.environ)
    os.umask(order.umask)
    os.chdir(job.inner_cwd)
    if job.warm:
        reseed_random()
        allow_own_rendezvous(int(order.env["MASTER_PORT"]))
        shield_usr1_handlers(node_dir.ignores_term(order.rank), os.environ)
        worker_server.start(node_dir.worker_server(order.rank))
        files = node_dir.error(order.rank), node_dir.stacks(order.rank), node_dir.fatal(order.rank)
        run_as_main(job.script, *files)
    else:
        cold_rank.execute(cold_rank.rank_argv(job, order.rank, node_dir))
