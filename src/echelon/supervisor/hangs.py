"""Detects hangs and late exits: by reported steps, otherwise by output and CPU time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from echelon.record import record
from echelon.supervisor.hang_timeout import LEAST_SECONDS, MOST_SECONDS, UNSEEN_SECONDS, StepTimes, hang_timeout
from echelon.text import format_ranks
from echelon.wire.messages import Sample

# An idle rank still uses some CPU (watchdog threads, timers). Below this share of a core it counts as idle.
IDLE_SHARE = 0.02
IDLE_ALLOWANCE = 0.05  # seconds of CPU
ACTIVITY_SECONDS = 30.0
"""CPU time is compared over at most this long, so that a long idle time allows no long use of the CPU."""
LATE_EXIT_SECONDS = 30.0
NOTICE_CHECK_SECONDS = 10.0
NOTICE_NOT_HANDLED = (
    "notice given, but no rank handles SIGUSR1 and none uses echelon.notice_given() or Checkpoint; "
    "unless the ranks save at SIGTERM, the run ends without a new checkpoint"
)


@dataclass
class RankProgress:
    since: float
    """When this rank last made progress."""
    sample: Sample
    stopped_since: float | None = None
    active_at: float = 0.0
    """When this rank last used CPU time, wrote output or waited on a disk."""
    waits: bool = False
    """Whether it waits in a collective."""
    waited_seconds: float = 0.0
    """How long at least it has waited in the same collective."""
    _compared: tuple[float, Sample] | None = None

    def is_stopped_for(self, now: float, timeout: float) -> bool:
        return self.stopped_since is not None and now - self.stopped_since >= timeout

    def observe(self, now: float, sample: Sample) -> bool:
        """Records a sample. True if the rank made progress since `since`."""
        self.stopped_since = (self.stopped_since or now) if sample.stopped else None
        self._observe_activity(now, sample)
        if not _is_active(self.sample, sample, now - self.since):
            return False
        self.since, self.sample = now, sample
        return True

    def _observe_activity(self, now: float, sample: Sample) -> None:
        self.waits, self.waited_seconds = sample.waits_in_collective, sample.collective_seconds
        then, before = self._compared or (self.since, self.sample)
        active = sample.waits_on_disk or _uses_machine(before, sample, now - then)
        if active:
            self.active_at = now
        if active or now - then >= ACTIVITY_SECONDS:
            self._compared = (now, sample)


def _uses_machine(before: Sample, after: Sample, elapsed: float) -> bool:
    cpu = after.cpu_seconds - before.cpu_seconds
    return after.lines > before.lines or cpu > IDLE_ALLOWANCE + IDLE_SHARE * elapsed


def _is_active(before: Sample, after: Sample, elapsed: float) -> bool:
    if after.step is not None or after.committed is not None:
        return (after.step, after.committed) != (before.step, before.committed)
    return _uses_machine(before, after, elapsed)


@record
class Hang:
    sentence: str
    idle_seconds: float


@dataclass
class HangDetector:
    """Progress of all ranks of one generation."""

    started: float
    expected: int = 0
    """Number of ranks in the generation. Hangs are detected only after all of them have started."""
    ranks: dict[int, RankProgress] = field(default_factory=dict)
    active: bool = False
    started_ranks: set[int] = field(default_factory=set)
    finished: dict[int, float] = field(default_factory=dict)
    """Ranks that exited with code 0, with the time of the exit."""
    late_reported: bool = False
    notice_handlers: set[int] = field(default_factory=set)
    """Ranks that handle the notice. Empty before the notice."""
    notice_check: float = float("inf")
    """When to check whether any rank handles the notice."""
    notice_given: bool = False
    times: StepTimes = field(default_factory=StepTimes)
    """What earlier generations have shown is kept."""
    group_timeout: float | None = None
    highest: int | None = None
    """The highest step of all ranks, living or not."""

    def observe(self, now: float, samples: Iterable[Sample]) -> None:
        for sample in samples:
            if sample.step is not None and (self.highest is None or sample.step > self.highest):
                self.highest = sample.step
            self.group_timeout = sample.group_timeout or self.group_timeout
            watch = self.ranks.get(sample.rank)
            if watch is None:
                self.ranks[sample.rank] = RankProgress(since=now, sample=sample)
            elif watch.observe(now, sample):
                self.active = True
            self._record_start(now, sample.rank)
            if sample.handles_notice:
                self.notice_handlers.add(sample.rank)
        self.times.observe(now, self.highest)

    def expect_notice_handling(self, now: float, seconds_left: float) -> None:
        self.notice_given = True
        self.notice_check = now + min(NOTICE_CHECK_SECONDS, seconds_left / 2)

    def notice_warning(self, now: float) -> str | None:
        """A warning if no rank handles the notice. Returned once."""
        if now < self.notice_check or not self.ranks:
            return None
        self.notice_check = float("inf")
        return None if self.notice_handlers else NOTICE_NOT_HANDLED

    def _record_start(self, now: float, rank: int) -> None:
        """The hang timeout of every rank starts when the last one has started."""
        was_complete = self.is_complete
        self.started_ranks.add(rank)
        if not was_complete and self.is_complete:
            self.restart_timeouts(now)

    @property
    def is_complete(self) -> bool:
        """Whether every rank has started. Evaluated for each sample, so it must not iterate over all ranks."""
        return len(self.started_ranks) >= self.expected

    @property
    def missing_ranks(self) -> list[int]:
        return [rank for rank in range(self.expected) if rank not in self.started_ranks]

    def restart_timeouts(self, now: float) -> None:
        """Restarts the timeouts of all ranks."""
        self.started = now
        self.times.restart()
        for watch in self.ranks.values():
            watch.since, watch.stopped_since, watch.active_at = now, None, now

    def record_exit(self, now: float, rank: int, code: int) -> None:
        """Stops watching a rank that has exited."""
        self._record_start(now, rank)
        self.ranks.pop(rank, None)
        if code == 0:
            self.finished[rank] = now

    @property
    def step(self) -> int | None:
        return max((w.sample.step for w in self.ranks.values() if w.sample.step is not None), default=None)

    @property
    def committed(self) -> int | None:
        return max((w.sample.committed for w in self.ranks.values() if w.sample.committed is not None), default=None)

    def missing_ranks_sentence(self, now: float, join_timeout: float) -> str | None:
        """A sentence that names the ranks that have not started within `join_timeout`; None if all have."""
        if self.is_complete or now - self.started < join_timeout:
            return None
        return f"{format_ranks(self.missing_ranks)} did not start within --join-timeout ({join_timeout:g} s)"

    def find_hang(self, now: float, explicit: float | None, default_group_timeout: float) -> Hang | None:
        """The hang, if there is one. `explicit` is --hang-timeout: None to learn the timeout, 0 to detect no hangs."""
        if explicit is not None:
            sentence = self.hang_sentence(now, explicit) if explicit else None
            return None if sentence is None else Hang(sentence=sentence, idle_seconds=explicit)
        if self.notice_given or not self.ranks or not self.is_complete:
            return None  # after the notice, ranks save and exit; the time limit ends them if they do not
        find = self._find_learned_hang if self.times.is_armed else self._find_early_hang
        return find(now, self.group_timeout or default_group_timeout)

    def _find_early_hang(self, now: float, group: float) -> Hang | None:
        """Without reported steps, and in the first steps.

        Only a rank that waits in a collective is ended by torch. Its wait counts, because the ranks may have worked for
        long before it. A rank that still works is not interrupted.
        """
        waiting = [watch for watch in self.ranks.values() if watch.waits]
        waited = float(int(min(max((watch.waited_seconds for watch in waiting), default=0.0), now - self.started)))
        others = max((watch.active_at for watch in self.ranks.values() if not watch.waits), default=0.0)
        everyone = max(watch.active_at for watch in self.ranks.values())
        is_certain = len(waiting) == len(self.ranks) and now - everyone >= LEAST_SECONDS
        is_quiet = now - others >= min(UNSEEN_SECONDS, group / 2)
        timeout = hang_timeout(self.times, group, confirmed=is_certain)
        if waiting and (is_certain or is_quiet) and timeout is not None and waited >= timeout:
            sentence = (
                f"no progress for {waited:g} s (torch ends ranks that wait for {group:g} s): "
                f"{format_ranks([rank for rank, watch in sorted(self.ranks.items()) if watch.waits])} in a collective"
            )
            return Hang(sentence=sentence, idle_seconds=waited)
        silent = self.hang_sentence(now, MOST_SECONDS)
        return None if silent is None else Hang(sentence=silent, idle_seconds=MOST_SECONDS)

    def _find_learned_hang(self, now: float, group: float) -> Hang | None:
        """Three timeouts: ranks may be silent for a shorter time if it is certain that none of them works."""
        watches = self.ranks.values()
        progress = max(watch.since for watch in watches)
        waiting = [watch for watch in watches if watch.waits]
        quiet = max(progress, *(watch.active_at for watch in watches if not watch.waits), 0.0)
        still = max(quiet, *(watch.active_at for watch in waiting), 0.0)
        cases: list[tuple[float, float | None]] = [
            (progress, hang_timeout(self.times, group if waiting else float("inf"), busy=True)),
            (quiet, hang_timeout(self.times, group)),
        ]
        if len(waiting) == len(self.ranks):
            cases.append((still, hang_timeout(self.times, group, confirmed=True)))
        cases += [(watch.stopped_since, cases[1][1]) for watch in watches if watch.stopped_since is not None]
        for since, timeout in cases:
            if timeout is not None and now - since >= timeout:
                return self._learned_hang(now, float(int(now - since)))
        return None

    def _learned_hang(self, now: float, idle: float) -> Hang | None:
        sentence = self.hang_sentence(now, idle)
        if sentence is None:
            return None
        learned = f"(learned from steps of {self.times.slowest_ordinary:.2g} s; --hang-timeout sets it): "
        return Hang(sentence=sentence.replace(": ", f" {learned}", 1), idle_seconds=idle)

    def hang_sentence(self, now: float, timeout: float) -> str | None:
        """A sentence that names the ranks that hang; None if there is no hang.

        An idle rank is no hang while another rank works: it may wait for that rank at a barrier. A rank stopped by a
        signal is a hang even if the other ranks use CPU time while they wait.
        """
        if not self.ranks or not self.is_complete:
            return None
        last = max(watch.since for watch in self.ranks.values())
        idle = now - last >= timeout
        frozen = [
            rank for rank, watch in sorted(self.ranks.items()) if watch.is_stopped_for(now, 0 if idle else timeout)
        ]
        if frozen:
            return f"no progress for {timeout:g} s: {format_ranks(frozen)} stopped by a signal (SIGSTOP)"
        if not idle:
            return None
        reports = any(watch.sample.step is not None for watch in self.ranks.values())
        what = "no new step" if reports else "no output and no CPU time"
        return f"no progress for {timeout:g} s: {what} from {format_ranks(sorted(self.ranks))}"

    def idle_by_rank(self, now: float) -> dict[int, float]:
        """Seconds since each living rank made progress."""
        return {rank: now - watch.since for rank, watch in self.ranks.items()}

    def late_exit_warning(self, now: float, hang_timeout: float | None = None) -> str | None:
        """A warning if some ranks have finished and the others neither exit nor make progress. Returned once."""
        if self.late_reported or not self.finished or not self.ranks:
            return None
        limit = late_exit_seconds(hang_timeout)
        last = max(*self.finished.values(), *(watch.since for watch in self.ranks.values()))
        if now - last < limit:
            return None
        self.late_reported = True
        left = sorted(self.ranks)
        verb = "has" if len(left) == 1 else "have"
        done = format_ranks(sorted(self.finished))
        return f"{done} finished; {format_ranks(left)} {verb} not exited for {limit:g} s"


def late_exit_seconds(hang_timeout: float | None) -> float:
    """At most half of the hang timeout, so that the warning comes before the timeout ends the run."""
    return min(LATE_EXIT_SECONDS, hang_timeout / 2) if hang_timeout else LATE_EXIT_SECONDS
