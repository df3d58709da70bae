"""StarterProcess: the agent's side of the starter. Starts it, sends it orders, receives its reports and ends it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from echelon.agent.context import AgentContext
from echelon.system import processes
from echelon.wire.fds import REPORTS, OrderQueue, Report, StarterOrder, receive_order

REAP_SECONDS = 5.0
STRAY_SECONDS = 2.0


class StarterProcess:
    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, sys.argv[0], "starter", str(theirs.fileno()), str(os.getpid())]
        argv += [str(self._context.run_path), str(self._context.node_dir.path)]
        self._process = subprocess.Popen(
            argv,
            env=self._context.environ,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=self._context.job.inner_cwd,
            start_new_session=True,  # a kill of the agent's session spares the starter, which then cleans up
        )
        theirs.close()
        self.link = ours
        self._orders = OrderQueue(ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the starter has imported torch."""
        return self._orders.is_open

    @property
    def has_orders(self) -> bool:
        """Whether orders wait that the starter could receive now."""
        return self._orders.has_waiting

    def mark_ready(self) -> None:
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
        _kill_strays()
        self._orders.clear()
        self.link.close()
        self._start()

    def close(self, wait_seconds: float) -> None:
        """Closes the link, which makes the starter end all its processes.

        A starter that still imports has no processes, so it is killed. Any other starter is killed if it has not
        exited after `wait_seconds`.
        """
        self.link.close()
        if not self.is_ready:
            self._process.kill()
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._reap()
        _kill_strays()
        self._orders.clear()

    def _reap(self) -> None:
        try:
            self._process.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # it is blocked in the kernel (a dead file system) and dies when it wakes up


def _kill_strays() -> None:
    """Kills and reaps the processes that a dead starter left to this process, for at most STRAY_SECONDS."""
    deadline = time.monotonic() + STRAY_SECONDS
    while processes.children(os.getpid()) and time.monotonic() < deadline:
        processes.kill_descendants(os.getpid())
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(0.002)
