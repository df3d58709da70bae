"""One stop of a node's ranks: TERM, KILL after the grace, and then an end for whatever they left behind."""

from __future__ import annotations

import signal

from echelon.node.crew import Crew

STARTER_SECONDS = 5.0
LAUNCHER_SECONDS = 2.0
"""Beyond the grace that ranks on other hosts have, for a launcher of them all to leave by itself."""


class Stopping:
    """Goes on whenever it is asked to, and never waits."""

    def __init__(self, crew: Crew, generation: int, grace: float, now: float) -> None:
        self.generation = generation
        self._crew = crew
        self._kill_at = now + grace
        self._sweeping = False
        self._give_up_at = float("inf")
        crew.write_off_absent()
        if not crew.living():
            return
        if grace > 0:
            crew.ask_to_leave()
        else:
            crew.signal_all(signal.SIGKILL)
        crew.wake_the_stopped()

    def go_on(self, now: float) -> None:
        if self._give_up_at <= now:
            self._give_up_at = float("inf")
            self._crew.kill_starter()
        elif not self._crew.living() and not self._sweeping:
            if self._crew.is_clear(now):
                self._sweep(now)
        elif now >= self._kill_at and self._crew.living():
            self._crew.signal_all(signal.SIGKILL)
            self._kill_at = now + 1.0
            self._give_up_at = min(self._give_up_at, now + STARTER_SECONDS)

    def _sweep(self, now: float) -> None:
        self._sweeping = True
        patience = max(0.0, self._kill_at - now) + LAUNCHER_SECONDS
        self._give_up_at = now + STARTER_SECONDS * 2 + patience
        self._crew.sweep(self.generation, patience)
