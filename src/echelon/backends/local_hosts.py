"""Rehearsed nodes: N hosts on one machine, each a subprocess with its own loopback address."""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from echelon.backends.hosts import ConnectBackHosts, Host, SchedulerQuery
from echelon.backends.node_environ import IMPORTER_DIGEST, IMPORTER_FD, environ_digest, node_environ
from echelon.job import Job
from echelon.placement import gpus_of_node
from echelon.run_dir import RunDir
from echelon.system import processes
from echelon.system.project import read_runnable_job
from echelon.wire.fds import (
    IMPORTER_REPORTS,
    AgentServed,
    EndStarter,
    ImporterReport,
    Ready,
    ServeAgent,
    receive_order,
    send_order,
)
from echelon.wire.node_dir import NodeDir

CLEAN_UP_SECONDS = 3.0
REAP_SECONDS = 5.0


class LocalHosts(ConnectBackHosts):
    can_restart_lost_hosts = True
    requeues_in_process = True

    def __init__(self, job: Job, environ: Mapping[str, str], run_path: Path) -> None:
        self._job = job
        self._environ = environ
        self._agent_pids: set[int] = set()
        self._importer = shared_importer(environ, run_path) if job.warm and not job.is_enclosed else None
        self.all: Sequence[Host] = [
            Host(name=f"node{n}", source=f"127.0.0.{n + 1}") for n in range(job.resources.all_nodes)
        ]

    def listen_address(self) -> str:
        return "127.0.0.1"

    def start_agent(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        environ = {**self._environ, **self._gpu_variables(node)}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            if self._importer is not None:
                environ |= {IMPORTER_FD: str(theirs.fileno()), IMPORTER_DIGEST: self._importer.digest}
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                env=environ,
                pass_fds=[] if self._importer is None else [theirs.fileno()],
                start_new_session=True,
            )
            if self._importer is not None:
                self._importer.serve_agent(process.pid, ours)
        self._agent_pids.add(process.pid)
        return process

    def _gpu_variables(self, node: int) -> dict[str, str]:
        per_node = self._job.resources.gpus_per_node
        if per_node == 0:
            return {}
        listed = self._environ.get("CUDA_VISIBLE_DEVICES")
        everything = range(per_node * self._job.resources.all_nodes)
        visible = tuple(listed.split(",")) if listed else tuple(map(str, everything))
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus_of_node(visible, node, per_node))}

    def end_agent(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:
        """Kills the agent first. Its starter notices, ends the ranks and cleans up. Kills what is left after
        CLEAN_UP_SECONDS."""
        process.kill()
        _wait_for_exit(process, REAP_SECONDS)
        self._agent_pids.discard(process.pid)
        if self._importer is not None:
            self._importer.end_starter(process.pid, CLEAN_UP_SECONDS)
        if self._importer is None or self._importer.is_running() or not self._agent_pids:
            self._end_orphans()
        if node_dir is not None:
            NodeDir(node_dir).remove()

    def _end_orphans(self) -> None:
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while (orphans := self._orphaned_pids()) and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in orphans:
            for member in (pid, *processes.descendants(pid)):
                processes.send_signal(member, signal.SIGKILL)

    def _orphaned_pids(self) -> list[int]:
        """Live processes of dead agents. This process is a subreaper, so they are now its children. After the death of
        the importer, the starters of living agents are too."""
        known = self._agent_pids if self._importer is None else {*self._agent_pids, self._importer.pid}
        orphans = [pid for pid in processes.children(os.getpid()) if pid not in known]
        return [pid for pid in orphans if not processes.reap_pid(pid)]

    def end_late_agents(self) -> None:
        pass

    def close(self) -> None:
        pass

    def start_query(self) -> SchedulerQuery | None:
        return None

    def requeue(self, lost_hosts: Sequence[str]) -> None:
        """Never called: this process starts the next attempt."""


class Importer:
    """The process that imports torch for all rehearsed nodes and forks their starters. It serves all attempts."""

    def __init__(self, cwd: str, environ: Mapping[str, str], run_path: Path) -> None:
        """Raises OSError if the working directory is missing."""
        self.digest = environ_digest(environ)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, sys.argv[0], "importer", str(theirs.fileno()), str(os.getpid()), str(run_path)],
                env=environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=cwd,
                start_new_session=True,
            )
        self._is_ready = False
        atexit.register(self.end)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def serve_agent(self, agent: int, link: socket.socket) -> None:
        with suppress(OSError):  # the agent notices, because the link closes
            send_order(self._link, ServeAgent(number=agent), (link.fileno(),))

    def end_starter(self, agent: int, seconds: float) -> None:
        """Call after the death of the agent. Returns when its starter and all processes below it are gone."""
        self._receive_report(0.0)
        if not self._is_ready:
            return  # it has forked nothing, and a starter without an agent exits at once
        with suppress(OSError):
            send_order(self._link, EndStarter(number=agent, seconds=seconds))
        deadline = time.monotonic() + seconds + REAP_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            report = self._receive_report(left)
            if report is None or report == AgentServed(number=agent):
                return

    def _receive_report(self, seconds: float) -> ImporterReport | None:
        """None if the importer has died or sends nothing for `seconds`."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN | select.POLLHUP)
        received = receive_order(self._link, IMPORTER_REPORTS) if poller.poll(seconds * 1000) else None
        report = received[0] if received is not None else None
        self._is_ready = self._is_ready or isinstance(report, Ready)
        return report

    def end(self) -> None:
        """Call after the end of all agents. Then the importer exits when its link closes, unless it still imports."""
        self._link.close()
        if self._is_ready:
            _wait_for_exit(self._process, REAP_SECONDS)
        for pid in (*processes.descendants(self.pid), self.pid) if self.is_running() else ():
            processes.send_signal(pid, signal.SIGKILL)
        _wait_for_exit(self._process, REAP_SECONDS)


_importers: list[Importer] = []
"""The importer of this process, if it has started one."""


def shared_importer(environ: Mapping[str, str], run_path: Path) -> Importer | None:
    """The importer of the last attempt if it still fits, otherwise a new one. None if none can start."""
    job = read_runnable_job(RunDir(run_path))  # as the agents read it: in the snapshot, if there is one
    wanted = node_environ(environ, job)
    if _importers and _importers[0].is_running() and _importers[0].digest == environ_digest(wanted):
        return _importers[0]
    for old in _importers:
        old.end()
    try:
        _importers[:] = [Importer(job.inner_cwd, wanted, run_path)]
    except OSError:
        _importers.clear()  # the agents report why
    return _importers[0] if _importers else None


def _wait_for_exit(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
