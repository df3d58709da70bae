"""A launcher starts a worker in place of each rank. The worker registers with the agent and starts the rank."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from echelon.agent import cold_rank, registration
from echelon.agent.environ import decode_environ
from echelon.agent.rank_environ import apply_changes, rank_changes
from echelon.errors import ConfigError
from echelon.placement import RankPlace
from echelon.system import processes
from echelon.system.signals import open_signal_fd
from echelon.train import detectors
from echelon.train.detectors import DetectedRank
from echelon.wire.fds import WORKER_ORDERS, CheckIn, RankEnded, RunRank, Signal, WorkerReport, receive_order, send_order
from echelon.wire.reports import Started

NODE_FOLDERS = "ECHELON_NODE_FOLDERS"
"""The node folders of all nodes, in order of node rank. Set if one launcher starts the ranks of all nodes."""
KILL_SECONDS = 2.0
DETECTORS: dict[str, Callable[[Mapping[str, str]], DetectedRank | None]] = {
    "srun": detectors.detect_srun,
    "mpirun": detectors.detect_open_mpi,
}
SINGLE_RANK = DetectedRank(source="", rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)


def main(launcher: str) -> int:
    for signum in cold_rank.BLOCKED_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    processes.set_subreaper()
    try:
        os.environ.update(decode_environ(os.environ))
        detected = detect_rank(launcher, os.environ)
        folder, local_rank = find_registration(detected, os.environ)
        link = registration.connect(folder)
        send_order(link, make_check_in(detected, local_rank, os.environ), wait=True)
        received = receive_order(link, WORKER_ORDERS)
    except (ConfigError, OSError, ValueError) as error:
        print(f"cannot register this rank with the agent: {error}", file=sys.stderr, flush=True)
        return 1
    if received is None:
        return 1  # too late, or rejected: the agent reports it
    order, fds = received
    if not isinstance(order, RunRank):
        return 1  # a signal before the rank exists
    child = _start_rank(order, fds[0], link)
    return RankMonitor(link, child, order.place).run()


def pack_folders(folders: Sequence[str]) -> str:
    """The folders as the value of one variable. Common prefixes are stored once: Linux limits a variable to 128 KiB."""
    start = _common_prefix(folders)
    return json.dumps([start, [folder[len(start) :] for folder in folders]], separators=(",", ":"))


def _common_prefix(texts: Sequence[str]) -> str:
    """The longest common prefix, by character. Python 3.15 deprecates os.path.commonprefix."""
    smallest, largest = min(texts, default=""), max(texts, default="")  # no other two texts differ earlier
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(smallest, largest, strict=False))
    return "".join(letter for letter, _ in same)


def unpack_folders(text: str) -> list[str]:
    start, ends = json.loads(text)
    return [start + end for end in ends]


def detect_rank(launcher: str, environ: Mapping[str, str]) -> DetectedRank:
    """The rank that the launcher's variables give this process. Pure; raises ConfigError."""
    detected = DETECTORS.get(launcher, detectors.detect_torchrun)(environ)
    if detected is None and launcher in DETECTORS:
        raise ConfigError(f"{launcher} did not set the rank of this process")
    return detected or SINGLE_RANK  # accelerate sets no variables for a single process


def find_registration(detected: DetectedRank, environ: Mapping[str, str]) -> tuple[Path, int]:
    """The node folder of the rank's node, and its local rank there. Pure; raises ValueError."""
    if NODE_FOLDERS not in environ:
        return Path(environ["ECHELON_NODE_DIR"]), detected.local_rank or 0
    folders = unpack_folders(environ[NODE_FOLDERS])
    node, local_rank = divmod(detected.rank, max(1, detected.world_size // len(folders)))
    if node >= len(folders):
        raise ValueError(f"rank {detected.rank} of {detected.world_size} does not fit on {len(folders)} nodes")
    return Path(folders[node]), local_rank


def make_check_in(detected: DetectedRank, local_rank: int, environ: Mapping[str, str]) -> CheckIn:
    """The message with which a worker registers. Pure."""
    description = f"{detected.source or 'the launcher'} assigned rank {detected.rank} of {detected.world_size}"
    generation = int(environ["ECHELON_GENERATION"])
    return CheckIn(
        generation=generation,
        local_rank=local_rank,
        rank=detected.rank,
        world_size=detected.world_size,
        description=description,
    )


def merge_rank_environ(order: RunRank, environ: Mapping[str, str]) -> dict[str, str]:
    """The launcher's variables with those of the order. `env` replaces values, `defaults` only adds names. Pure."""
    inherited = {name: value for name, value in environ.items() if name != NODE_FOLDERS}
    return {**order.defaults, **inherited, **order.env}


def _start_rank(order: RunRank, output: int, link: socket.socket) -> int:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.setsid()
        processes.die_with_parent(parent)
        link.close()
        cold_rank.connect_output(output)
        cold_rank.restore_signals()
        os.environ.update(merge_rank_environ(order, os.environ))
        apply_changes(rank_changes(order.place, os.environ), os.environ)
        os.environ.pop(NODE_FOLDERS, None)
        os.umask(order.umask)
        os.chdir(order.cwd)
        cold_rank.execute(order.argv)
    os.close(output)
    return child


class RankMonitor:
    """Watches a rank from its start until the agent releases the worker or is gone.

    A worker outlives its rank: if one worker exits, the launcher ends all the others, but the supervisor decides when
    ranks stop.
    """

    def __init__(self, link: socket.socket, child: int, place: RankPlace) -> None:
        self._link = link
        self._child = child
        self._rank = place.rank
        self._generation = place.placement.generation
        self._code: int | None = None

    def run(self) -> int:
        """Runs until the worker is released. Returns the rank's exit code as a shell does: 128 + N for signal N."""
        wake = open_signal_fd(signal.SIGCHLD)
        self._send_report(Started(generation=self._generation, rank=self._rank, pid=self._child))
        while True:
            self._reap()
            readable, _, _ = select.select([self._link.fileno(), wake], [], [])
            if wake in readable:
                os.read(wake, 4096)
            if self._link.fileno() in readable and not self._handle_order():
                break
        self._kill_leftovers()
        code = -signal.SIGKILL if self._code is None else self._code
        return 128 - code if code < 0 else code

    def _handle_order(self) -> bool:
        """Executes one order. Returns false if the agent has released the worker or is gone."""
        received = receive_order(self._link, WORKER_ORDERS)
        if received is None:
            return False
        order, _ = received
        if isinstance(order, Signal) and self._code is None:  # not reaped yet, so the pid is still valid
            send = processes.send_group_signal if order.group else processes.send_signal
            send(self._child, order.signum)
        return True

    def _send_report(self, report: WorkerReport) -> None:
        try:
            send_order(self._link, report, wait=True)
        except OSError:
            pass  # the agent is gone; the next receive returns None

    def _reap(self) -> None:
        for ended in processes.reap_children():
            if ended.pid == self._child:
                self._code = ended.code
                now, generation = time.time(), self._generation
                end = RankEnded(generation=generation, rank=self._rank, code=ended.code, time=now, peak=ended.peak)
                self._send_report(end)

    def _kill_leftovers(self) -> None:
        """Kills the rank if it still runs, and all processes that it left behind."""
        deadline = time.monotonic() + KILL_SECONDS
        while processes.children(os.getpid()) and time.monotonic() < deadline:
            processes.kill_descendants(os.getpid())
            self._reap()
            time.sleep(0.002)
