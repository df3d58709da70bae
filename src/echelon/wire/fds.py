"""Orders to starters, workers and the importer, and their reports: JSON over a local socket, with file descriptors."""

from __future__ import annotations

import array
import errno
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, Union, get_args

from echelon.codec import decode_named, encode_named
from echelon.placement import RankPlace
from echelon.record import record
from echelon.untrusted import parse_json
from echelon.wire.reports import FatalNodeProblem, LauncherFailed, Started, StoreDied


def with_short_path(path: Path, call: Callable[[str], object]) -> None:
    """Calls `call`, a socket's bind or connect, with a short path: a socket path has at most 107 bytes."""
    fd = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)


MAX_ORDER_BYTES = 1 << 18
"""More than the kernel allows for one message of a local socket, so that no message is truncated."""
T = TypeVar("T")


# Orders


@record
class StartRank:
    """Fork a rank. The descriptor is for its output."""

    generation: int
    rank: int
    umask: int
    env: Mapping[str, str]
    changes: Mapping[str, str | None]
    """Inherited variables to set, or to remove if None."""


@record
class OpenStore:
    """Fork the rendezvous store. The descriptor is its listening socket."""

    generation: int
    address: str
    port: int


@record
class RunLauncher:
    """Fork and execute a launcher. The descriptor is for its output."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    removed: tuple[str, ...]
    """Variables to remove."""
    launcher_seconds: float
    """Seconds for the launcher to exit by itself after its ranks have ended."""


@record
class Signal:
    ranks: tuple[int, ...]
    signum: int
    group: bool
    """Send to the process group of each rank instead of only the rank."""


@record
class Workers:
    """The workers of this node. The starter stops and continues them with the agent."""

    workers: tuple[tuple[int, int], ...]
    """Pid and start time of each worker."""


@record
class KillLeftovers:
    """End every process that the ranks of the generation left behind."""

    generation: int
    launcher_seconds: float


@record
class RunRank:
    """For a worker: fork and execute its rank. The descriptor is for the rank's output."""

    argv: tuple[str, ...]
    cwd: str
    umask: int
    env: Mapping[str, str]
    defaults: Mapping[str, str]
    """Variables to set if the launcher did not set them."""
    place: RankPlace


@record
class ServeAgent:
    """For the importer, from the supervisor: fork starters for an agent. The descriptor is the link to the agent."""

    number: int


@record
class EndStarter:
    """For the importer, from the supervisor: the agent is gone. Kill its starter after `seconds`."""

    number: int
    seconds: float


@record
class ForkStarter:
    """For the importer, from an agent. The descriptor is the starter's end of the link to the agent."""

    agent: int
    """The pid of the agent."""
    node_dir: str
    gpus: str | None
    """CUDA_VISIBLE_DEVICES of the node."""


@record
class KillStarter:
    """For the importer, from an agent: its starter does not answer."""


# Reports


@record
class Ready:
    """The starter has imported what it needs, or the importer has."""

    pid: int


@record
class StarterEnded:
    """Of the importer, to the agent: its starter and all processes below it are gone."""

    pid: int


@record
class AgentServed:
    """Of the importer, to the supervisor, after EndStarter: nothing of the agent is left."""

    number: int


@record
class RankEnded:
    """`code` is negative for a signal, as in subprocess."""

    generation: int
    rank: int
    code: int
    time: float
    peak: int | None = None
    """The largest resident set of the rank's process in bytes."""


@record
class LauncherEnded:
    code: int


@record
class LeftoversKilled:
    generation: int


@record
class CheckIn:
    """The first report of a worker: its place according to the launcher's variables."""

    generation: int
    local_rank: int
    rank: int
    world_size: int
    description: str
    """The same as a sentence, for error messages."""


StarterOrder = Union[StartRank, OpenStore, RunLauncher, Signal, Workers, KillLeftovers]
WorkerOrder = Union[RunRank, Signal]
Report = Union[Ready, Started, RankEnded, StoreDied, LauncherEnded, LauncherFailed, FatalNodeProblem, LeftoversKilled]
WorkerReport = Union[CheckIn, Started, RankEnded]
ImporterOrder = Union[ServeAgent, EndStarter, ForkStarter, KillStarter]
ImporterReport = Union[Ready, StarterEnded, AgentServed]
STARTER_ORDERS: dict[str, type[StarterOrder]] = {kind.__name__: kind for kind in get_args(StarterOrder)}
WORKER_ORDERS: dict[str, type[WorkerOrder]] = {kind.__name__: kind for kind in get_args(WorkerOrder)}
REPORTS: dict[str, type[Report]] = {kind.__name__: kind for kind in get_args(Report)}
WORKER_REPORTS: dict[str, type[WorkerReport]] = {kind.__name__: kind for kind in get_args(WorkerReport)}
IMPORTER_ORDERS: dict[str, type[ImporterOrder]] = {kind.__name__: kind for kind in get_args(ImporterOrder)}
IMPORTER_REPORTS: dict[str, type[ImporterReport]] = {kind.__name__: kind for kind in get_args(ImporterReport)}


class OrderQueue:
    """Queues orders for a process that may be busy. Never blocks the caller."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._waiting: list[tuple[StarterOrder, tuple[int, ...]]] = []
        self.is_open = False
        """While False, all orders stay in the queue."""

    def put(self, order: StarterOrder, *fds: int) -> None:
        self._waiting.append((order, tuple(map(os.dup, fds))))
        self.send()

    def send(self) -> None:
        while self.is_open and self._waiting:
            order, fds = self._waiting[0]
            try:
                send_order(self._link, order, fds)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    return  # too many descriptors are in flight: try later
                self.clear()  # the other side is gone; the next receive reports it
                return
            self._waiting.pop(0)
            for fd in fds:
                os.close(fd)

    @property
    def has_waiting(self) -> bool:
        return self.is_open and bool(self._waiting)

    def clear(self) -> None:
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()


def send_order(
    link: socket.socket,
    order: StarterOrder | WorkerOrder | ImporterOrder | Report | WorkerReport | ImporterReport,
    fds: tuple[int, ...] = (),
    *,
    wait: bool = False,
) -> None:
    """Raises BlockingIOError if the socket is full and `wait` is False."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    flags = 0 if wait else socket.MSG_DONTWAIT  # socket.send_fds drops its flags, hence sendmsg
    link.sendmsg([json.dumps(encode_named(order)).encode()], rights, flags)


def receive_order(link: socket.socket, kinds: Mapping[str, type[T]]) -> tuple[T, list[int]] | None:
    """The next order or report with its file descriptors; None at the end. Raises ValueError for any other kind."""
    try:
        data, fds = _receive_bytes(link)
    except ConnectionResetError:  # it exited with unread orders; its earlier reports can still be read
        data, fds = _receive_bytes(link)
    return (decode_named(kinds, parse_json(data)), fds) if data else None


def _receive_bytes(link: socket.socket) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(link, MAX_ORDER_BYTES, 2)
    return data, fds
