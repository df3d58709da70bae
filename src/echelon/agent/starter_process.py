"""StarterProcess: the agent's side of the starter. Starts it, sends it orders, receives its reports and ends it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress

from echelon.agent.context import AgentContext
from echelon.backends.node_environ import GPU_VARIABLE, IMPORTER_DIGEST, IMPORTER_FD, environ_digest
from echelon.record import record
from echelon.system import processes
from echelon.wire.fds import (
    IMPORTER_REPORTS,
    REPORTS,
    ForkStarter,
    KillStarter,
    OrderQueue,
    Report,
    StarterEnded,
    StarterOrder,
    receive_order,
    send_order,
)

REAP_SECONDS = 5.0


@record
class ImporterOffer:
    """The link to an importer that the supervisor started, and the environ in which it imports torch."""

    link: socket.socket
    digest: str

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str]) -> ImporterOffer | None:
        """Removes the variables of the offer, which are not for ranks."""
        fd, digest = environ.pop(IMPORTER_FD, None), environ.pop(IMPORTER_DIGEST, "")
        if fd is None:
            return None
        link = socket.socket(fileno=int(fd))
        link.set_inheritable(False)
        return cls(link=link, digest=digest)


class StarterProcess:
    def __init__(self, context: AgentContext) -> None:
        self._context = context
        offer = context.importer
        self._importer = offer.link if offer and offer.digest == environ_digest(context.environ) else None
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: ForkedStarter | subprocess.Popen[bytes] = self._fork(theirs) or self._execute(theirs)
        theirs.close()
        self.pid = os.getpid()
        """The pid of the starter as soon as it is ready; until then this process stands for it."""
        self.link = ours
        self._orders = OrderQueue(ours)

    def _fork(self, theirs: socket.socket) -> ForkedStarter | None:
        """A starter of the importer, which has torch already. None without an importer, or if it has died."""
        if self._importer is None:
            return None
        folder, gpus = str(self._context.node_dir.path), self._context.environ.get(GPU_VARIABLE)
        try:
            send_order(self._importer, ForkStarter(agent=os.getpid(), node_dir=folder, gpus=gpus), (theirs.fileno(),))
        except OSError:
            self._importer = None
            return None
        return ForkedStarter(self._importer)

    def _execute(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        argv = [sys.executable, sys.argv[0], "starter", str(theirs.fileno()), str(os.getpid())]
        argv += [str(self._context.run_path), str(self._context.node_dir.path)]
        return subprocess.Popen(
            argv,
            env=self._context.environ,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=self._context.job.inner_cwd,
            start_new_session=True,  # a kill of the agent's session spares the starter, which then cleans up
        )

    @property
    def is_ready(self) -> bool:
        """Whether the starter has imported torch."""
        return self._orders.is_open

    @property
    def has_orders(self) -> bool:
        """Whether orders wait that the starter could receive now."""
        return self._orders.has_waiting

    def mark_ready(self, pid: int) -> None:
        self.pid = pid
        if isinstance(self._process, ForkedStarter):
            self._process.open_pidfd(pid)
        self._orders.is_open = True
        self._orders.send()

    def order(self, order: StarterOrder, *fds: int) -> None:
        """Queues an order. It is sent as soon as the starter has imported torch."""
        self._orders.put(order, *fds)

    def send_orders(self) -> None:
        self._orders.send()

    def discard_orders(self) -> None:
        self._orders.clear()

    def receive_report(self) -> Report | None:
        """The starter's next report, or None if the starter is gone."""
        received = receive_order(self.link, REPORTS)
        return None if received is None else received[0]

    def kill(self) -> None:
        """Also kills its ranks."""
        self._process.kill()

    def replace(self) -> None:
        """Call after the starter has died. Kills its remaining processes and starts a new starter."""
        self._reap()
        processes.kill_strays()
        self._orders.clear()
        self.link.close()
        self._start()

    def close(self, wait_seconds: float) -> None:
        """Closes the link, which makes the starter end all its processes.

        A starter that still imports has no processes, so it is killed; one that the importer has not forked yet exits
        at once when it is forked. Any other starter is killed if it has not exited after `wait_seconds`.
        """
        self.link.close()
        if not self.is_ready:
            self._process.kill()
        if self.is_ready or not isinstance(self._process, ForkedStarter):
            self._wait_or_kill(wait_seconds)
        processes.kill_strays()
        self._orders.clear()

    def _wait_or_kill(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        try:
            self._process.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # it is blocked in the kernel (a dead file system) and dies when it wakes up


class ForkedStarter:
    """A starter that the importer forks. Has the methods of subprocess.Popen that StarterProcess needs."""

    def __init__(self, importer: socket.socket) -> None:
        self._importer = importer
        self._pid: int | None = None
        self._pidfd: int | None = None
        """For the time after the death of the importer, which is the parent of the starter."""

    def open_pidfd(self, pid: int) -> None:
        self._pid = pid
        with suppress(OSError):  # the starter has just died, or the kernel is older than 5.3
            self._pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        try:
            send_order(self._importer, KillStarter())
        except OSError:
            if self._pidfd is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        """Waits until the starter and all processes below it are gone. Raises subprocess.TimeoutExpired.

        If the importer has died, waits only for the starter.
        """
        deadline = time.monotonic() + seconds
        while True:
            self._wait_readable(self._importer.fileno(), deadline)
            received = receive_order(self._importer, IMPORTER_REPORTS)
            if received is None:
                if self._pidfd is not None:
                    self._wait_readable(self._pidfd, deadline)
                return
            if self._pid is None or received[0] == StarterEnded(pid=self._pid):
                return  # otherwise it is about a starter that died too late

    def _wait_readable(self, fd: int, deadline: float) -> None:
        poller = select.poll()
        poller.register(fd, select.POLLIN | select.POLLHUP)
        left = max(0.0, deadline - time.monotonic())
        if not poller.poll(left * 1000):
            raise subprocess.TimeoutExpired("starter", left)

    def __del__(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
