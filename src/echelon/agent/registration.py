"""The socket at which workers register and get their ranks."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.record import record
from echelon.system import processes
from echelon.wire.fds import (
    WORKER_REPORTS,
    CheckIn,
    RankEnded,
    RunRank,
    Signal,
    WorkerOrder,
    receive_order,
    send_order,
    with_short_path,
)
from echelon.wire.reports import Started

SOCKET_NAME = "registration"
PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid and gid from the kernel


def connect(folder: Path) -> socket.socket:
    """Connects to the agent that owns `folder`. Raises OSError if none listens."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with_short_path(folder / SOCKET_NAME, link.connect)
    return link


@dataclass
class ConnectedWorker:
    """A connected worker. It gets a rank after its CheckIn has been accepted."""

    link: socket.socket
    pid: int
    check_in: CheckIn | None = None
    rank: int | None = None
    rank_ended: bool = False
    """Whether its rank has ended. The worker itself stays until it is released."""
    started: int | None = None
    """Start time of the process. Together with the pid it identifies the process uniquely."""


@record
class ReservedPlace:
    """The reserved place of a worker: its rank, the order for it, and the write end of the pipe for its output."""

    rank: int
    order: RunRank
    output: int
    expected: Mapping[str, int]
    """Fields of the worker's CheckIn and the values that they must have."""


@record
class WorkerRejected:
    """A worker was rejected because its CheckIn contradicts the placement."""

    why: str


def check_in_problem(check_in: CheckIn, place: ReservedPlace | None) -> str | None:
    """Why this worker cannot have this place, or None if it can. `place` is None if this node expects no such
    local rank or it has already registered. Pure."""
    if place is None:
        return f"{check_in.description}, but local rank {check_in.local_rank} is not expected or has registered before"
    found = {name: getattr(check_in, name) for name in place.expected}
    wrong = [
        f"{name} {found[name]} instead of {value}" for name, value in place.expected.items() if found[name] != value
    ]
    return f"{check_in.description}: {' and '.join(wrong)}" if wrong else None


class Registration:
    def __init__(self, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        with_short_path(folder / SOCKET_NAME, self._listener.bind)
        self._listener.listen(4096)
        self._workers: list[ConnectedWorker] = []
        self._generation = -1
        self._places: dict[int, ReservedPlace] = {}
        """Free places by local rank."""

    def open(self, generation: int, places: dict[int, ReservedPlace]) -> None:
        """Accepts workers of this generation. Some may already be connected."""
        self._generation = generation
        self._places = places

    def wait_readable(self, seconds: float) -> list[int]:
        """Waits at most `seconds`. Returns the descriptors that have data."""
        poller = select.poll()
        for fd in self.fds():
            poller.register(fd, select.POLLIN)
        return [fd for fd, _ in poller.poll(seconds * 1000)]

    def fds(self) -> list[int]:
        return [self._listener.fileno(), *(worker.link.fileno() for worker in self._workers)]

    def receive(self, readable: Iterable[int]) -> list[Started | RankEnded | WorkerRejected]:
        """Accepts new workers, reads the reports of connected ones, and assigns places."""
        ready = set(readable)
        if self._listener.fileno() in ready:
            self._accept()
        reports: list[Started | RankEnded | WorkerRejected] = []
        for worker in list(self._workers):
            if worker.link.fileno() in ready:
                reports += self._read_report(worker)
        return [*reports, *self._assign_places()]

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        peer, uid, _ = PEER_CREDENTIALS.unpack(
            link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
        )
        if uid != os.geteuid():
            link.close()
            return
        self._workers.append(ConnectedWorker(link=link, pid=peer, started=processes.start_time(peer)))

    def _read_report(self, worker: ConnectedWorker) -> list[Started | RankEnded]:
        """Replaces rank and generation of a report by the values that the worker got here."""
        try:
            received = receive_order(worker.link, WORKER_REPORTS)
        except ValueError:
            received = None  # not a report, so not a worker of this run
        if received is None:
            return self._remove_worker(worker)
        report, _ = received
        if isinstance(report, CheckIn):
            worker.check_in = report
            return []
        worker.rank_ended = worker.rank_ended or isinstance(report, RankEnded)
        return [] if worker.rank is None else [replace(report, rank=worker.rank, generation=self._generation)]

    def _remove_worker(self, worker: ConnectedWorker) -> list[Started | RankEnded]:
        """A worker that disconnects before its rank has ended was killed, and its rank with it."""
        self._workers.remove(worker)
        worker.link.close()
        if worker.rank is None or worker.rank_ended:
            return []
        return [RankEnded(generation=self._generation, rank=worker.rank, code=-signal.SIGKILL, time=time.time())]

    def _assign_places(self) -> list[WorkerRejected]:
        """Gives places to workers that have sent their CheckIn. Workers of a later generation wait."""
        reports: list[WorkerRejected] = []
        for worker in list(self._workers):
            if worker.check_in is None or worker.rank is not None or worker.check_in.generation > self._generation:
                continue
            if worker.check_in.generation < self._generation or not self._places:
                self._reject(worker)  # too late: every place is taken, or the generation is over
                continue
            wrong = check_in_problem(worker.check_in, self._places.get(worker.check_in.local_rank))
            if wrong is not None:
                self._reject(worker)
                reports.append(WorkerRejected(why=wrong))
                continue
            self._assign_place(worker, self._places.pop(worker.check_in.local_rank))
        return reports

    def _assign_place(self, worker: ConnectedWorker, place: ReservedPlace) -> None:
        worker.rank = place.rank
        self._send(worker, place.order, place.output)
        os.close(place.output)

    def _reject(self, worker: ConnectedWorker) -> None:
        self._workers.remove(worker)
        worker.link.close()

    # Orders

    def signal(self, order: Signal) -> None:
        for worker in self._workers:
            if worker.rank in order.ranks:
                self._send(worker, order)

    def _send(self, worker: ConnectedWorker, order: WorkerOrder, *fds: int) -> None:
        try:
            send_order(worker.link, order, fds)
        except OSError:
            pass  # it is gone, which the next receive shows; or it is stopped, and is killed when the grace ends

    def release_workers(self) -> None:
        """Releases all workers and rejects later ones. A worker kills its rank if that still runs."""
        self.discard_places()
        for worker in list(self._workers):
            if worker.check_in is not None and worker.check_in.generation > self._generation:
                continue
            try:
                worker.link.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # already gone

    def discard_places(self) -> None:
        for place in self._places.values():
            os.close(place.output)
        self._places = {}

    def worker_pid(self, rank: int) -> int | None:
        return next((worker.pid for worker in self._workers if worker.rank == rank), None)

    def workers(self) -> list[tuple[int, int]]:
        """Pid and start time of each connected worker."""
        return [(worker.pid, worker.started) for worker in self._workers if worker.started is not None]

    @property
    def is_empty(self) -> bool:
        return not any(worker.rank is not None for worker in self._workers)

    def kill(self) -> None:
        """Kills the workers that were released but have not exited, and all their descendants."""
        for worker in self._workers:
            for pid in (worker.pid, *processes.descendants(worker.pid)):
                processes.send_signal(pid, signal.SIGKILL)

    def disconnect_workers(self) -> None:
        """Closes all connections without reading them. Each worker then kills its rank and exits."""
        self.discard_places()
        for worker in self._workers:
            worker.link.close()
        self._workers = []

    def close(self) -> None:
        self.disconnect_workers()
        self._listener.close()
