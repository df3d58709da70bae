"""What is due after a step, on all ranks alike: nothing, a save, or the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto

from echelon.runtime.checkpoint.agreement import Agreement, Word
from echelon.runtime.checkpoint.cadence import Cadence
from echelon.runtime.checkpoint.saver import Saver
from echelon.runtime.checkpoint.stopping import Alarm, lead_remark
from echelon.runtime.checkpoint.surroundings import Surroundings


class Due(Enum):
    NOTHING = auto()
    SAVE = auto()
    STOP = auto()


class Rounds:
    def __init__(
        self,
        around: Surroundings,
        every: int | timedelta | None,
        *,
        alarm: Alarm,
        saver: Saver,
        lead: float | None,
        say: Callable[[str], None],
    ) -> None:
        """`lead` is how many seconds before the time limit the notice comes; None without one."""
        self._around = around
        self._agreement = Agreement(around.group, alone=around.size == 1)
        self._cadence = Cadence(every, time.monotonic())
        self._alarm, self._saver = alarm, saver
        self._lead, self._judged_seconds = lead, 0.0
        self._say = say

    def begin(self, step: int) -> None:
        """Training goes on from this step."""
        self._cadence.begin(step, time.monotonic())
        self._agreement.begin(step)

    def save_began(self, step: int) -> None:
        self._cadence.started(step, time.monotonic(), self._agreement.sent)

    def next_look(self, step: int) -> float:
        """The next step at which something may be due: the same one on all ranks."""
        return min(self._agreement.next_step, self._cadence.next_step(step))

    def due(self, step: int) -> Due:
        """To be asked at `next_look`, and not before."""
        if step >= self._agreement.next_step:
            joint = self._agreement.round(step, self._word())
            if joint is not None:
                self._cadence.heard(joint)
                if joint.stop:
                    return Due.STOP
        return Due.SAVE if self._cadence.is_due(step) and self._nobody_is_busy(step) else Due.NOTHING

    def _nobody_is_busy(self, step: int) -> bool:
        """The same on all ranks. A save that is due while another is under way is made up for later."""
        if self._around.size == 1:
            return not self._saver.busy
        if self._cadence.free or not self._cadence.is_first_due(step):
            return self._cadence.free
        return not self._agreement.now(self._saver.busy)

    def _word(self) -> Word:
        self._judge_the_lead()
        due = self._around.rank == 0 and self._cadence.clock_says(time.monotonic())
        return Word(stop=self._alarm.rings(), busy=self._saver.busy, due=due)

    def _judge_the_lead(self) -> None:
        """As soon as it is known how long a save takes, and not first when it is too late."""
        if self._saver.longest_seconds > self._judged_seconds:
            self._judged_seconds = self._saver.longest_seconds
            remark = lead_remark(self._judged_seconds, self._lead)
            if remark is not None:
                self._say(f"warning: the notice may come too late: {remark.replace('are left', 'will be left')}")
