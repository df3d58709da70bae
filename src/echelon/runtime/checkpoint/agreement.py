"""How ranks come to one decision at one step without stopping for it.

Every so many steps each rank throws its word into an all_reduce and looks at the result of the one before, which has
long arrived. All ranks do so at the same steps, so all see the same result at the same step. How many steps lie
between is agreed in the same way, from the duration of a step, so that rounds are about INTERVAL seconds apart. It
at most doubles from one round to the next: a few fast steps at the beginning say little about those to come.
"""

from __future__ import annotations

import time
from array import array
from typing import Any, NamedTuple

from echelon.errors import EnvironmentProblem

INTERVAL_SECONDS = 0.5
MOST_STEPS = 64
"""Fast steps may become slow ones, and a word that is said then is heard up to two rounds later. More would save
little: rounds so far apart cost about two microseconds a step."""


class Word(NamedTuple):
    """What a rank has to say, or all of them together: any of them, or the longest."""

    stop: bool = False
    busy: bool = False
    due: bool = False
    seconds: float = 0.0
    """Duration of a step."""
    round: int = 0


def steps_between(seconds: float) -> int:
    """How many steps there are from one round to the next."""
    if not seconds > 0:
        return 1
    return max(1, int(min(INTERVAL_SECONDS / seconds, float(MOST_STEPS))))


class Agreement:
    def __init__(self, group: Any, *, alone: bool) -> None:
        """`group` is a process group of its own: the script's collectives must not get between."""
        self._words = Maxima(None if alone else group, 4)
        self._busy = Maxima(None if alone else group, 1)
        self._pending = False
        self._sent_at, self._sent_step = 0.0, 0
        self._gap = 1
        self.next_step = 0
        """When the next round is: the same on all ranks."""
        self.sent = 0
        """Rounds begun: what a rank says later counts from the round of this number on."""

    def begin(self, step: int) -> None:
        """Steps are counted from here, which may lie before the last one."""
        self._sent_at, self._sent_step = time.perf_counter(), step
        self._gap, self.next_step = 1, step + 1

    def round(self, step: int, mine: Word) -> Word | None:
        """The ranks' joint word of the round before. To be called at `next_step`, on all ranks."""
        joint = self._heard()
        now = time.perf_counter()
        self._send(mine, (now - self._sent_at) / max(1, step - self._sent_step) if self.sent else 0.0)
        self._sent_at, self._sent_step = now, step
        self._gap = min(2 * self._gap, steps_between(joint.seconds)) if joint is not None else 1
        self.next_step = step + self._gap
        return joint

    def now(self, busy: bool) -> bool:
        """Is any rank busy at this very moment? Waits for all of them."""
        self._busy.numbers[0] = busy
        self._busy.begin()
        self._busy.wait()
        return self._busy.numbers[0] > 0

    def _send(self, word: Word, seconds: float) -> None:
        numbers = self._words.numbers
        numbers[0], numbers[1], numbers[2], numbers[3] = word.stop, word.busy, word.due, seconds
        self._words.begin()
        self._pending = True
        self.sent += 1

    def _heard(self) -> Word | None:
        if not self._pending:
            return None
        self._pending = False
        self._words.wait()
        stop, busy, due, seconds = self._words.numbers
        return Word(stop > 0, busy > 0, due > 0, seconds, self.sent - 1)


class Maxima:
    """Numbers of which each becomes the largest that any rank has in its place.

    They lie in plain memory that torch sees as a tensor: writing and reading them goes by torch altogether, and the
    collective comes straight from the group. That is a third of what torch.tensor and dist.all_reduce take.
    """

    def __init__(self, group: Any, count: int) -> None:
        """`group` is None for a rank that is alone."""
        self.numbers = array("d", bytes(8 * count))
        self._group = group
        self._work: Any = None
        if group is not None:
            import torch
            import torch.distributed as dist

            self._tensors = [torch.frombuffer(self.numbers, dtype=torch.float64)]
            self._options = dist.AllreduceOptions()
            self._options.reduceOp = dist.ReduceOp.MAX

    def begin(self) -> None:
        """Until `wait` returns the numbers are neither to be read nor written."""
        if self._group is not None:
            self._work = self._group.allreduce(self._tensors, self._options)

    def wait(self) -> None:
        if self._work is not None:
            _wait(self._work)
            self._work = None


def _wait(work: Any) -> None:
    try:
        work.wait()
    except RuntimeError as error:
        raise EnvironmentProblem(
            "another rank has gone",
            origin="echelon.Checkpoint, where the ranks agree on when to save and stop",
            why=f"Connection closed by peer: {str(error).partition(chr(10))[0]}",
        ) from error
