"""The stacks of all ranks of a node, saved before a hang is ended."""

from __future__ import annotations

import time

from echelon.node import stacks
from echelon.node.as_main import STACKS_SIGNAL
from echelon.node.crew import Crew
from echelon.node.node_dir import NodeDir
from echelon.node.sinks import Sinks
from echelon.run_dir import AttemptDir

STACKS_SECONDS = 3.0
QUIET_SECONDS = 0.1


class Dumping:
    """Ranks that listen write their own; of the others there is what the kernel tells."""

    def __init__(
        self, crew: Crew, generation: int, *, node_dir: NodeDir, attempt: AttemptDir, sinks: Sinks, now: float
    ) -> None:
        self.generation = generation
        self._crew = crew
        self._node_dir = node_dir
        self._attempt = attempt
        self._sinks = sinks
        self._deadline = now + STACKS_SECONDS
        self._asked = crew.signal_those_who_listen(STACKS_SIGNAL)
        crew.wake_the_stopped()

    def is_done(self, now: float) -> bool:
        """True once, when all that will come has been saved."""
        files = [self._node_dir.stacks(rank) for rank in self._asked]
        if now < self._deadline and not stacks.is_settled(files, QUIET_SECONDS, time.time()):
            return False
        for member in self._crew.living():
            if member.pid is not None:
                self._save(member.rank, member.pid)
        return True

    def _save(self, rank: int, pid: int) -> None:
        file = self._node_dir.stacks(rank)
        text = file.read_text(errors="replace") if file.exists() else ""
        log = self._sinks.log(self._attempt.rank_stacks(rank))
        log.write(stacks.describe(pid, text).encode(errors="replace"))
        log.close()
        file.write_bytes(b"")
