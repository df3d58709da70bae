"""Rehearsed nodes: N hosts on one machine, each a subprocess with its own loopback address."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.backends.hosts import ConnectBackHosts, Host, SchedulerQuery
from echelon.job import Job
from echelon.placement import gpus_of_node
from echelon.system import processes
from echelon.wire.node_dir import NodeDir

CLEAN_UP_SECONDS = 3.0
REAP_SECONDS = 5.0


class LocalHosts(ConnectBackHosts):
    can_restart_lost_hosts = True
    requeues_in_process = True

    def __init__(self, job: Job, environ: Mapping[str, str]) -> None:
        self._job = job
        self._environ = environ
        self._agent_pids: set[int] = set()
        self.all: Sequence[Host] = [
            Host(name=f"node{n}", source=f"127.0.0.{n + 1}") for n in range(job.resources.all_nodes)
        ]

    def listen_address(self) -> str:
        return "127.0.0.1"

    def start_agent(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env={**self._environ, **self._gpu_variables(node)},
            start_new_session=True,
        )
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
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while (orphans := self._orphaned_pids()) and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in orphans:
            for member in (pid, *processes.descendants(pid)):
                processes.send_signal(member, signal.SIGKILL)
        if node_dir is not None:
            NodeDir(node_dir).remove()

    def _orphaned_pids(self) -> list[int]:
        """Live processes of dead agents. This process is a subreaper, so they are now its children."""
        orphans = [pid for pid in processes.children(os.getpid()) if pid not in self._agent_pids]
        return [pid for pid in orphans if not _reap_pid(pid)]

    def end_late_agents(self) -> None:
        pass

    def close(self) -> None:
        pass

    def start_query(self) -> SchedulerQuery | None:
        return None

    def requeue(self, lost_hosts: Sequence[str]) -> None:
        """Never called: this process starts the next attempt."""


def _wait_for_exit(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def _reap_pid(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
