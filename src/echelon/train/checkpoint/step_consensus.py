"""How ranks agree at a step: by an asynchronous all_reduce in rounds, so that no rank waits."""

from __future__ import annotations

import time
from array import array
from typing import Any, NamedTuple

from echelon.errors import EnvironmentProblem

ROUND_INTERVAL_SECONDS = 0.5
MAX_STEPS_PER_ROUND = 64
"""Upper limit of the steps between two rounds. Fast steps may become slow, and the other ranks read a status up to two
rounds after it is set. A larger limit would save little: at this distance, rounds cost about two microseconds a
step."""


class RankStatus(NamedTuple):
    """The status of one rank in a round, or of all ranks together: a flag is set if any rank set it, and `seconds` is
    the largest value."""

    stop: bool = False
    busy: bool = False
    due: bool = False
    seconds: float = 0.0
    """Duration of a step."""
    round: int = 0


def steps_per_round(seconds: float) -> int:
    """The number of steps from one round to the next, for steps of that duration."""
    if not seconds > 0:
        return 1
    return max(1, int(min(ROUND_INTERVAL_SECONDS / seconds, float(MAX_STEPS_PER_ROUND))))


class StepConsensus:
    def __init__(self, group: Any, *, alone: bool) -> None:
        """`group` is a separate process group: the script's collectives must not interleave with these."""
        self._status = MaxAllReduce(None if alone else group, 4)
        self._busy = MaxAllReduce(None if alone else group, 1)
        self._pending = False
        self._sent_at, self._sent_step = 0.0, 0
        self._gap = 1
        self.next_step = 0
        """The step of the next round. It is the same on all ranks."""
        self.sent = 0
        """The number of rounds started. A status that this rank sets from now on is part of the round with this
        number."""

    def begin(self, step: int) -> None:
        """Counts steps from this one, which may be earlier than the last one."""
        self._sent_at, self._sent_step = time.perf_counter(), step
        self._gap, self.next_step = 1, step + 1

    def exchange(self, step: int, mine: RankStatus) -> RankStatus | None:
        """Starts a round and returns the joint status of the previous one. All ranks call this at `next_step`."""
        joint = self._receive()
        now = time.perf_counter()
        self._send(mine, (now - self._sent_at) / max(1, step - self._sent_step) if self.sent else 0.0)
        self._sent_at, self._sent_step = now, step
        self._gap = min(2 * self._gap, steps_per_round(joint.seconds)) if joint is not None else 1
        self.next_step = step + self._gap
        return joint

    def is_any_busy(self, busy: bool) -> bool:
        """Whether any rank is busy at this step. Waits for all ranks."""
        self._busy.numbers[0] = busy
        self._busy.begin()
        self._busy.wait()
        return self._busy.numbers[0] > 0

    def _send(self, status: RankStatus, seconds: float) -> None:
        numbers = self._status.numbers
        numbers[0], numbers[1], numbers[2], numbers[3] = status.stop, status.busy, status.due, seconds
        self._status.begin()
        self._pending = True
        self.sent += 1

    def _receive(self) -> RankStatus | None:
        if not self._pending:
            return None
        self._pending = False
        self._status.wait()
        stop, busy, due, seconds = self._status.numbers
        return RankStatus(stop > 0, busy > 0, due > 0, seconds, self.sent - 1)


class MaxAllReduce:
    """An asynchronous all_reduce with MAX over a few numbers.

    The numbers are in an array whose memory torch uses as a tensor. Reading and writing them involves no call to torch,
    and the collective is called on the group directly. This takes a third of the time of torch.tensor and
    dist.all_reduce.
    """

    def __init__(self, group: Any, count: int) -> None:
        """`group` is None if there is only one rank."""
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
        """Starts the all_reduce. The numbers must not be read or written until `wait` returns."""
        if self._group is not None:
            self._work = self._group.allreduce(self._tensors, self._options)

    def wait(self) -> None:
        if self._work is not None:
            _wait_for_collective(self._work)
            self._work = None


def _wait_for_collective(work: Any) -> None:
    try:
        work.wait()
    except RuntimeError as error:
        raise EnvironmentProblem(
            "lost the connection to another rank",
            origin="echelon.Checkpoint: agreement of the ranks on when to save and stop",
            why=f"Connection closed by peer: {str(error).partition(chr(10))[0]}",
        ) from error
