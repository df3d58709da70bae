"""Is anything still happening? Steps where the script reports them, output and CPU time where it does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from echelon.node.messages import Sample

# An idle rank still ticks (watchdog threads, timers): below this share of a core it counts as idle.
IDLE_SHARE = 0.02
IDLE_ALLOWANCE = 0.05  # seconds of CPU


@dataclass
class RankWatch:
    since: float
    """When this rank last did anything."""
    sample: Sample
    stopped_since: float | None = None

    def is_frozen(self, now: float, timeout: float) -> bool:
        return self.stopped_since is not None and now - self.stopped_since >= timeout

    def observe(self, now: float, sample: Sample) -> bool:
        """Takes in a sample; true if the rank has done something since `since`."""
        self.stopped_since = (self.stopped_since or now) if sample.stopped else None
        if not _has_moved(self.sample, sample, now - self.since):
            return False
        self.since, self.sample = now, sample
        return True


def _has_moved(before: Sample, after: Sample, elapsed: float) -> bool:
    if after.step is not None or after.committed is not None:
        return (after.step, after.committed) != (before.step, before.committed)
    cpu = after.cpu_seconds - before.cpu_seconds
    return after.lines > before.lines or cpu > IDLE_ALLOWANCE + IDLE_SHARE * elapsed


@dataclass
class Watch:
    """Over all ranks of one generation."""

    started: float
    ranks: dict[int, RankWatch] = field(default_factory=dict)
    moved: bool = False
    forgotten: bool = False

    def observe(self, now: float, samples: Iterable[Sample]) -> None:
        for sample in samples:
            watch = self.ranks.get(sample.rank)
            if watch is None:
                self.ranks[sample.rank] = RankWatch(since=now, sample=sample)
            elif watch.observe(now, sample):
                self.moved = True

    def forget(self, rank: int) -> None:
        """A rank that has left can no longer hang."""
        self.ranks.pop(rank, None)
        self.forgotten = True

    @property
    def step(self) -> int | None:
        return max((w.sample.step for w in self.ranks.values() if w.sample.step is not None), default=None)

    @property
    def committed(self) -> int | None:
        return max((w.sample.committed for w in self.ranks.values() if w.sample.committed is not None), default=None)

    def hang(self, now: float, timeout: float, patience: float = 0.0) -> str | None:
        """The sentence that says who hangs, if anyone does. Until the first rank starts, `patience` counts as well.

        One idle rank is no hang while another works: it may wait at a barrier for it. A rank stopped by a
        signal is one, however busily the others wait.
        """
        if not self.ranks and not self.forgotten:
            limit = max(timeout, patience)
            return f"no rank has started within {limit:g} s" if now - self.started >= limit else None
        last = max((watch.since for watch in self.ranks.values()), default=now)
        idle = bool(self.ranks) and now - last >= timeout
        frozen = [rank for rank, watch in sorted(self.ranks.items()) if watch.is_frozen(now, 0 if idle else timeout)]
        if frozen:
            return f"no progress for {timeout:g} s: {_ranks(frozen)} stopped by a signal (SIGSTOP)"
        if not idle:
            return None
        reports = any(watch.sample.step is not None for watch in self.ranks.values())
        what = "no new step" if reports else "no output and no CPU time"
        return f"no progress for {timeout:g} s: {what} from {_ranks(sorted(self.ranks))}"


def _ranks(numbers: list[int]) -> str:
    listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"rank {listed}" if len(numbers) == 1 else f"ranks {listed}"
