"""When to save, and what is due after a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Literal, Union

from echelon.errors import ConfigError
from echelon.train.checkpoint.consensus import ProcessGroupInfo
from echelon.train.checkpoint.saver import Saver
from echelon.train.checkpoint.step_consensus import RankStatus, StepConsensus
from echelon.train.checkpoint.stopping import StopListener, short_notice_warning
from echelon.train.checkpoint.write import SaveResult

AUTO: Literal["auto"] = "auto"
SaveInterval = Union[int, timedelta, Literal["auto"], None]
FIRST_AUTO_SAVE_SECONDS = 30.0
"""Time until the first automatic save after a start. With it, an early fault costs less than a minute of training."""
MIN_AUTO_INTERVAL_SECONDS = 60.0
"""Shortest time between two automatic saves."""
MAX_WAITING_SHARE = 0.02
"""Largest share of the time that training may wait for saves."""
MAX_WRITING_SHARE = 0.1
"""Largest share of the time in which a save may be written in the background: writing uses shared disks and cores."""


def auto_interval_seconds(waited: float, written: float) -> float:
    """Time from one automatic save to the next. `waited` and `written` are the seconds that the last save took."""
    return max(MIN_AUTO_INTERVAL_SECONDS, waited / MAX_WAITING_SHARE, written / MAX_WRITING_SHARE)


class SaveSchedule:
    def __init__(self, every: SaveInterval, now: float) -> None:
        _check_save_interval(every)
        self._automatic = every == AUTO
        self._steps = every if isinstance(every, int) else None
        self._seconds = every.total_seconds() if isinstance(every, timedelta) else None
        if self._automatic:
            self._seconds = FIRST_AUTO_SAVE_SECONDS
        self._began = self._asked = now
        self._is_first = True
        self._next_step = self._steps or 0
        self._due_by_clock = False
        self._first_valid_round = 0
        self.free = True
        """True if it is known that no rank has a save in progress."""

    def begin(self, step: int, now: float) -> None:
        """Restarts the schedule at this step: at the start of training and of each save."""
        self._next_step = step - step % self._steps + self._steps if self._steps else 0
        self._began = self._asked = now
        self._due_by_clock = False

    def save_took(self, waited: float, written: float) -> None:
        """Adapts the automatic interval to a finished save.

        Training waited `waited` seconds for it, and writing it took `written` seconds.
        """
        if self._automatic:
            self._seconds = auto_interval_seconds(waited, written)

    def save_started(self, step: int, now: float, rounds: int) -> None:
        """Records that a save has started. The first `rounds` rounds started before it, so their status is outdated."""
        self.begin(step, now)
        self._is_first = False
        self.free, self._first_valid_round = False, rounds

    def apply_status(self, joint: RankStatus) -> None:
        if joint.round >= self._first_valid_round:
            self.free = self.free or not joint.busy
            self._due_by_clock = self._due_by_clock or joint.due

    def is_due(self, step: int) -> bool:
        return self._due_by_clock or self.is_first_due(step) or (self._steps is not None and step > self._next_step)

    def next_step(self, step: int) -> float:
        """The step at which to call `is_due` again, unless a round makes a save due earlier."""
        return self._next_step if self._steps is not None and step < self._next_step else float("inf")

    def is_first_due(self, step: int) -> bool:
        """Whether the save becomes due at exactly this step.

        If it is not known whether a rank is busy, all ranks are asked at this step only.
        """
        return self._steps is not None and step == self._next_step

    def is_due_by_clock(self, now: float) -> bool:
        """Whether a save is due by this rank's clock. Call this once per round: the ranks then agree on the answer.

        The other ranks get the answer one round later. The first automatic save takes that round into account, since
        the round may be as long as a slow step.
        """
        round_seconds, self._asked = now - self._asked, now
        ahead = round_seconds if self._automatic and self._is_first else 0.0
        return self._seconds is not None and now + ahead - self._began >= self._seconds


def _check_save_interval(every: SaveInterval) -> None:
    if every is None or every == AUTO:
        return
    if every > timedelta(0) if isinstance(every, timedelta) else type(every) is int and every > 0:
        return
    raise ConfigError(
        f"every is {every!r}",
        origin="echelon.Checkpoint",
        hint='use a number of steps, a timedelta, "auto", or None to save only by save() and at the end',
    )


class StepAction(Enum):
    NOTHING = auto()
    SAVE = auto()
    STOP = auto()


class StepDecider:
    def __init__(
        self,
        group: ProcessGroupInfo,
        every: SaveInterval,
        *,
        stop_listener: StopListener,
        saver: Saver,
        lead: float | None,
        say: Callable[[str], None],
    ) -> None:
        """`lead` is the number of seconds from the notice to the time limit; None if the run has no time limit."""
        self._group = group
        self._agreement = StepConsensus(group.group, alone=group.size == 1)
        self._schedule = SaveSchedule(every, time.monotonic())
        self._stop_listener, self._saver = stop_listener, saver
        self._lead, self._warned_seconds = lead, 0.0
        self._say = say
        self._counted: SaveResult | None = None

    def begin(self, step: int) -> None:
        """Restarts rounds and schedule at this step, after a checkpoint was loaded."""
        self._schedule.begin(step, time.monotonic())
        self._agreement.begin(step)

    def save_began(self, step: int) -> None:
        self._schedule.save_started(step, time.monotonic(), self._agreement.sent)

    def next_check(self, step: int) -> float:
        """The next step at which to call `due`. It is the same on all ranks."""
        return min(self._agreement.next_step, self._schedule.next_step(step))

    def next_action(self, step: int) -> StepAction:
        """The action after this step. All ranks call this at `next_check`, and not before."""
        if step >= self._agreement.next_step:
            joint = self._agreement.exchange(step, self._own_status())
            if joint is not None:
                self._schedule.apply_status(joint)
                if joint.stop:
                    return StepAction.STOP
        return StepAction.SAVE if self._schedule.is_due(step) and self._no_rank_is_saving(step) else StepAction.NOTHING

    def _no_rank_is_saving(self, step: int) -> bool:
        """Whether no rank has a save in progress; the same answer on all ranks.

        A save that becomes due during another save starts after it.
        """
        if self._group.size == 1:
            return not self._saver.busy
        if self._schedule.free or not self._schedule.is_first_due(step):
            return self._schedule.free
        return not self._agreement.is_any_busy(self._saver.busy)

    def _own_status(self) -> RankStatus:
        self._warn_if_notice_is_short()
        self._adapt_interval()
        due = self._group.rank == 0 and self._schedule.is_due_by_clock(time.monotonic())
        return RankStatus(stop=self._stop_listener.is_stop_requested(), busy=self._saver.busy, due=due)

    def _adapt_interval(self) -> None:
        last = self._saver.last
        if last is not None and last is not self._counted:
            self._counted = last
            waited = last.waited if self._saver.asynchronous else last.seconds
            written = last.seconds if last.problem is None else 0.0  # so that a failed save is tried again sooner
            self._schedule.save_took(waited, written)

    def _warn_if_notice_is_short(self) -> None:
        """Warns that the notice is too short as soon as the duration of a save is known, not only at the notice."""
        if self._saver.longest_seconds > self._warned_seconds:
            self._warned_seconds = self._saver.longest_seconds
            remark = short_notice_warning(self._warned_seconds, self._lead)
            if remark is not None:
                self._say(f"warning: the notice may come too late: {remark.replace('are left', 'will be left')}")
