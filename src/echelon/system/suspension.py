"""Handles jobs that are stopped and continued (`scontrol suspend`, `qsig -s suspend`, SIGSTOP, Ctrl-Z)."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence

from echelon.system import processes

PAUSE_SECONDS = 2.0
POLL_SECONDS = 0.5
CUT_OFF_SHARE = 0.75  # of the heartbeat: a node that is cut off must end its ranks before others replace them
EXTENSION_SHARE = 0.25  # of the heartbeat: a living supervisor sends the next heartbeat within this time


class PauseDetector:
    """Measures how long the loop of this process stood still. An ordinary iteration takes a fraction of a second."""

    def __init__(self, now: float, heartbeat: float) -> None:
        self._limit = min(PAUSE_SECONDS, heartbeat / 3)
        self._last = now

    def seconds_paused(self, now: float) -> float:
        """Seconds since the last call if the loop stood still; 0 for an ordinary iteration."""
        lost = now - self._last
        self._last = now
        return lost if lost > self._limit else 0.0


class CutOffDetector:
    """Detects that an agent is cut off: it no longer receives heartbeats."""

    def __init__(self, now: float, heartbeat: float) -> None:
        self._heartbeat = heartbeat
        self._end_at = 0.0
        self._is_extended = False
        self.restart_timeouts(now)

    def restart_timeouts(self, now: float) -> None:
        """Call after a heartbeat, or after the agent was stopped with its job and continued."""
        self._end_at = now + CUT_OFF_SHARE * self._heartbeat
        self._is_extended = False

    def extend_once(self, now: float) -> None:
        """Call after the loop of the agent stood still for an unknown reason. Extends the deadline a little, only once.

        The machine was frozen, or a write to a file server took long, perhaps because this node is cut off.
        """
        end_at = now + EXTENSION_SHARE * self._heartbeat
        if end_at > self._end_at and not self._is_extended:
            self._end_at, self._is_extended = end_at, True

    def is_cut_off(self, now: float) -> bool:
        return now > self._end_at


class AgentFollower:
    """Stops the node's processes while the agent is stopped, and continues them with the agent.

    Ranks have sessions of their own. PBS stops only the sessions that it knows, so ranks would continue while their
    GPUs belong to another job.
    """

    def __init__(self, agent: int, starter: int) -> None:
        self._agent = agent
        self._starter = starter
        self._stopped: set[int] = set()
        self.workers: Sequence[tuple[int, int]] = ()
        """Pid and start time of each worker of this node. A launcher on another node may have started them."""

    def follow(self) -> None:
        """Call about every POLL_SECONDS."""
        if processes.is_stopped(self._agent):
            self._stop_all()
        elif self._stopped:
            self._continue_all()

    def _descendant_pids(self) -> set[int]:
        """The descendants of the starter, the workers and their descendants."""
        workers = [pid for pid, started in self.workers if processes.start_time(pid) == started]
        below = [processes.descendants(pid) for pid in (self._starter, *workers)]
        return {*workers, *itertools.chain(*below)}

    def _stop_all(self) -> None:
        for pid in self._descendant_pids():
            if pid not in self._stopped and not processes.is_stopped(pid):
                processes.send_signal(pid, signal.SIGSTOP)
                self._stopped.add(pid)

    def _continue_all(self) -> None:
        """Continues only processes that `_stop_all` stopped. A rank that was stopped before stays stopped."""
        for pid in self._stopped.intersection(self._descendant_pids()):
            processes.send_signal(pid, signal.SIGCONT)
        self._stopped.clear()
