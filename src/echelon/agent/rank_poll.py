"""Asks the ranks of this node how they spend their steps, and whether a silent rank waits in a collective or on a disk.

The answers come from torch's worker server in each rank. A thread asks, so that the agent's loop never waits. A rank
that reports no steps is asked only while it prints nothing, and less often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from echelon.agent.evidence import flight_recorder
from echelon.diagnosis.pace import LEAST_STEPS, NANOSECONDS, Pace, measure_pace, parse_calls
from echelon.record import record
from echelon.system import processes
from echelon.wire.node_dir import NodeDir, parse_step_marks

ASK_SECONDS = 5.0
"""Between two questions to the same rank."""
COST_FACTOR = 100.0
"""The next question comes after this multiple of the time that the last one took. With 2,000 recorded collectives the
answer has 1 MB and takes up to 0.1 s."""
SILENT_SECONDS = 30.0
"""A rank whose step has not changed for so long is looked at. Without steps: whose output has not changed. Such a rank
may train silently, so it is asked again only after as long, unless it waits in a collective."""
ANSWER_SECONDS = 2.0
ROUND_SECONDS = 1.0


@record
class RankLook:
    waits_in_collective: bool = False
    collective_seconds: float = 0.0
    """How long this rank has been in the same collective."""
    waits_on_disk: bool = False
    group_timeout: float | None = None
    pace: Pace | None = None


@dataclass
class _Watched:
    pid: int
    next_time: float
    step: int | None = None
    place: tuple[str, int] | None = None
    """The step, or the number of output lines of a rank that reports no steps."""
    changed_at: float = 0.0
    asked_step: int = -1
    pending: tuple[int, float] | None = None
    """When its oldest pending collective was called, by the wall clock and by the monotonic one."""
    looked_at: float = 0.0
    look: RankLook = field(default_factory=RankLook)


class RankPoll:
    def __init__(self, node_dir: NodeDir) -> None:
        self._node_dir = node_dir
        self._ranks: dict[int, _Watched] = {}
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def watch(self, ranks: Mapping[int, tuple[int, int | None, int]]) -> None:
        """The pid, the step and the output lines of each living rank, at every heartbeat. Starts the thread."""
        now = time.monotonic()
        for rank in self._ranks.keys() - ranks.keys():
            self._ranks.pop(rank, None)
        for rank, (pid, step, lines) in ranks.items():
            watched = self._ranks.get(rank)
            if watched is None or watched.pid != pid:
                watched = self._ranks[rank] = _Watched(pid, now + ASK_SECONDS, looked_at=now)
            place = ("line", lines) if step is None else ("step", step)
            if place != watched.place:
                watched.step, watched.place, watched.changed_at = step, place, now
                with self._lock:
                    watched.look = replace(watched.look, waits_in_collective=False, waits_on_disk=False)
        if self._thread is None and ranks:
            self._thread = threading.Thread(target=self._run, name="rank poll", daemon=True)
            self._thread.start()

    def take(self, rank: int) -> RankLook:
        """What is known about a rank. Returns each pace once."""
        watched = self._ranks.get(rank)
        if watched is None:
            return RankLook()
        with self._lock:
            look, watched.look = watched.look, replace(watched.look, pace=None)
        return look

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(ROUND_SECONDS):
            for rank, watched in list(self._ranks.items()):
                try:
                    self._ask_if_due(rank, watched)
                except Exception:  # noqa: BLE001  the poll is an aid: no failure of it may end the others
                    watched.next_time = time.monotonic() + SILENT_SECONDS

    def _ask_if_due(self, rank: int, watched: _Watched) -> None:
        now = time.monotonic()
        if now < watched.next_time:
            return
        marks = parse_step_marks(self._node_dir.read_step_times(rank))  # before the collectives of these steps are read
        new = [mark for mark in marks if mark.step > watched.asked_step]
        silent = now - watched.changed_at >= SILENT_SECONDS
        if len(new) <= LEAST_STEPS and not silent:
            return
        record = parse_calls(flight_recorder(self._node_dir.worker_server(rank), ANSWER_SECONDS) or b"")
        since = record.pending_since if silent and record is not None else None
        pause = SILENT_SECONDS if watched.step is None and since is None else ASK_SECONDS
        watched.next_time = time.monotonic() + max(pause, COST_FACTOR * (time.monotonic() - now))
        pace = measure_pace(new, record) if len(new) > LEAST_STEPS else None
        if pace is not None:
            watched.asked_step = new[-1].step
        on_disk = silent and processes.waits_on_disk(watched.pid)
        if since is None or watched.pending is None or watched.pending[0] != since:
            watched.pending = None if since is None else (since, _begin(since, now, watched.looked_at))
        watched.looked_at = now
        with self._lock:
            silent = silent and watched.changed_at < now
            watched.look = RankLook(
                waits_in_collective=silent and watched.pending is not None,
                collective_seconds=0.0 if watched.pending is None else now - watched.pending[1],
                waits_on_disk=silent and on_disk,
                group_timeout=record.group_timeout if record is not None else watched.look.group_timeout,
                pace=pace or watched.look.pace,
            )


def _begin(since: int, now: float, looked_at: float) -> float:
    """When a collective was called. It was not pending at the last look, so that a wall clock that was set does little
    harm."""
    age = time.time() - since / NANOSECONDS
    return max(looked_at, now - max(0.0, age))
