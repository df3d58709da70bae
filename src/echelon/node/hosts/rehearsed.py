"""Rehearsed nodes: one machine poses as N hosts, each a subprocess with a loopback address of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.job import Job
from echelon.node import processes
from echelon.node.hosts import Dialled, Host, Question
from echelon.node.node_dir import NodeDir
from echelon.plan import gpus_of_node

CLEAN_UP_SECONDS = 3.0
REAP_SECONDS = 5.0


def hosts(job: Job, run_path: Path, environ: Mapping[str, str]) -> Rehearsed:  # noqa: ARG001  all are asked alike
    return Rehearsed(job, environ)


class Rehearsed(Dialled):
    comes_back = True
    early_seconds = 0.0
    reserve_seconds = 0.0
    requeues_here = True
    carried = None

    def __init__(self, job: Job, environ: Mapping[str, str]) -> None:
        self._job = job
        self._environ = environ
        self._living: set[int] = set()
        self.all = [Host(name=f"node{n}", source=f"127.0.0.{n + 1}") for n in range(job.resources.all_nodes)]

    def listen_address(self) -> str:
        return "127.0.0.1"

    def start(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env={**self._environ, **self._gpu_variables(node)},
            start_new_session=True,
        )
        self._living.add(process.pid)
        return process

    def _gpu_variables(self, node: int) -> dict[str, str]:
        per_node = self._job.resources.gpus_per_node
        if per_node == 0:
            return {}
        listed = self._environ.get("CUDA_VISIBLE_DEVICES")
        everything = range(per_node * self._job.resources.all_nodes)
        visible = tuple(listed.split(",")) if listed else tuple(map(str, everything))
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus_of_node(visible, node, per_node))}

    def end(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:
        """The agent first: its starter notices, ends the ranks and cleans up. What has not gone by then is killed."""
        process.kill()
        _wait(process, REAP_SECONDS)
        self._living.discard(process.pid)
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while (orphans := self._adopted()) and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in orphans:
            for member in (pid, *processes.descendants(pid)):
                processes.send_signal(member, signal.SIGKILL)
        if node_dir is not None:
            NodeDir(node_dir).remove()

    def _adopted(self) -> list[int]:
        """What lost its parent when an agent died is our child now; those of them that still live."""
        orphans = [pid for pid in processes.children(os.getpid()) if pid not in self._living]
        return [pid for pid in orphans if not _reap(pid)]

    def tend(self) -> None:
        pass

    def close(self) -> None:
        pass

    def ask(self) -> Question | None:
        return None

    def requeue(self, lost: Sequence[str]) -> None:
        """Not asked for: the next attempt starts here."""


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
