"""Stops the ranks of a node: SIGTERM, SIGKILL after the grace, then kills the processes that they left behind."""

from __future__ import annotations

import signal

from echelon.agent.ranks import RankSet

STARTER_SECONDS = 5.0
LAUNCHER_SECONDS = 2.0
"""Time for a launcher of all nodes to exit by itself, after the grace of the ranks on other hosts."""


class StopSequence:
    """Never blocks: each call of `advance` does the next step that is due."""

    def __init__(self, ranks: RankSet, generation: int, grace: float, now: float) -> None:
        self.generation = generation
        self._ranks = ranks
        self._kill_at = now + grace
        self._killing_leftovers = False
        self._give_up_at = float("inf")
        ranks.drop_unregistered()
        if not ranks.living_members():
            return
        if grace > 0:
            ranks.terminate_ranks()
        else:
            ranks.signal_all(signal.SIGKILL)
        ranks.continue_stopped_ranks()

    def advance(self, now: float) -> None:
        if self._give_up_at <= now:
            self._give_up_at = float("inf")
            self._ranks.starter.kill()
        elif not self._ranks.living_members() and not self._killing_leftovers:
            if self._ranks.workers_are_gone(now):
                self._kill_leftovers(now)
        elif now >= self._kill_at and self._ranks.living_members():
            self._ranks.signal_all(signal.SIGKILL)
            self._kill_at = now + 1.0
            self._give_up_at = min(self._give_up_at, now + STARTER_SECONDS)

    def _kill_leftovers(self, now: float) -> None:
        self._killing_leftovers = True
        launcher_seconds = max(0.0, self._kill_at - now) + LAUNCHER_SECONDS + self._ranks.removal_seconds
        self._give_up_at = now + STARTER_SECONDS * 2 + launcher_seconds
        self._ranks.kill_leftovers(self.generation, launcher_seconds)
