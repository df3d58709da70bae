"""Judges the step times of a run: the learned hang timeout, and the ranks that slow the others down. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from echelon.diagnosis.pace import Pace, median
from echelon.diagnosis.slow import SlowRanks, Verdict
from echelon.wire.messages import Sample

LEAST_SECONDS = 60.0
MOST_SECONDS = 30 * 60.0
UNSEEN_SECONDS = 6 * 60.0
"""The first evaluation or save of a run is longer than every step before it. Shorter silences are no hang without
other evidence."""
NCCL_SECONDS = 10 * 60.0
GLOO_SECONDS = 30 * 60.0
"""The default timeouts of torch's process groups. NCCL aborts the process then, and its evidence is lost."""
SHARE_OF_GROUP = 0.75
LATE_SHARE_OF_GROUP = 0.9
"""Before anything is learned, and if a silent rank may still reach the collective."""
STEPS_FACTOR = 5.0
"""The timeout is this multiple of the slowest ordinary step."""
SLOWEST_FACTOR = 1.5
"""The timeout is at least this multiple of the slowest gap of all, saves and evaluations included."""
ORDINARY_FACTOR = 4.0
"""A gap of more than this multiple of the median is no ordinary step."""
FIRST_STEPS = 5
"""Gaps at the start of a generation that are not learned: compilation, first batches, connections."""
KEPT_GAPS = 500


class StepTimes:
    """The gaps between steps of one run. Keeps what it has learned over restarts."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=KEPT_GAPS)
        self._slowest = 0.0
        self._step: int | None = None
        self._since: float | None = None
        self._seen = 0
        self._ordinary: float | None = None

    def observe(self, now: float, step: int | None) -> None:
        """Records the highest step of all ranks. Call it at each heartbeat: a gap ends when the step changes."""
        if step is None or step == self._step:
            return
        if self._since is not None:
            self._seen += 1
            if self._seen > FIRST_STEPS:
                self._learn(now - self._since)
        self._step, self._since = step, now

    def restart(self) -> None:
        """Call it for a new generation, and after the supervisor itself was stopped. Forgets the gap in progress."""
        self._step, self._since, self._seen = None, None, 0

    def _learn(self, gap: float) -> None:
        self._gaps.append(gap)
        self._slowest = max(self._slowest, gap)
        self._ordinary = None

    @property
    def is_armed(self) -> bool:
        """Whether the first steps of the generation are over and at least one gap is known."""
        return self._seen >= FIRST_STEPS and bool(self._gaps)

    @property
    def slowest(self) -> float:
        """The longest gap of the run, saves and evaluations included."""
        return self._slowest

    @property
    def slowest_ordinary(self) -> float:
        """The longest gap that is not far above the median."""
        if self._ordinary is None:
            most = ORDINARY_FACTOR * median(self._gaps) if self._gaps else 0.0
            self._ordinary = max((gap for gap in self._gaps if gap <= most), default=0.0)
        return self._ordinary


def hang_timeout(
    times: StepTimes,
    process_group_timeout: float,
    explicit: float | None = None,
    *,
    confirmed: bool = False,
    busy: bool = False,
) -> float | None:
    """Seconds without a new step after which the ranks hang; None if hangs are not detected.

    `explicit` is the value of --hang-timeout: None to learn it, 0 to detect no hangs. `confirmed` is true if other
    evidence shows a hang: every rank waits in a collective, and none uses CPU time or writes output. `busy` is true
    if a rank still works, which may be a long evaluation. A gap that the run has survived never trips it, even above
    the bounds. Without reported steps and in the first steps, the result applies to the time that a rank has waited in
    a collective.
    """
    if explicit is not None:
        return explicit or None
    below_group = min(MOST_SECONDS, group_bound(process_group_timeout))
    if not times.is_armed:
        late = max(LEAST_SECONDS, LATE_SHARE_OF_GROUP * process_group_timeout)
        return below_group if confirmed else min(MOST_SECONDS, late)
    if busy:
        return max(below_group, SLOWEST_FACTOR * times.slowest)
    least = LEAST_SECONDS if confirmed else UNSEEN_SECONDS
    wanted = max(least, STEPS_FACTOR * times.slowest_ordinary)
    return max(min(wanted, below_group), SLOWEST_FACTOR * times.slowest)


def group_bound(process_group_timeout: float) -> float:
    """Well below the timeout of the process group, so that evidence is collected before torch aborts the rank."""
    return max(LEAST_SECONDS, SHARE_OF_GROUP * process_group_timeout)


# Ranks that slow the others down. They are reported, and never stopped or restarted


class SlowWatch:
    """The pace of the ranks of one generation. A look needs a new pace of every living rank."""

    def __init__(self, expected: int = 0) -> None:
        self._expected = expected
        self._hosts: dict[int, str] = {}
        self._paces: dict[int, Pace] = {}
        self._ranks = SlowRanks(hosts=self._hosts)

    def observe(self, host: str, samples: Iterable[Sample]) -> None:
        for sample in samples:
            if sample.pace is not None:
                self._hosts[sample.rank], self._paces[sample.rank] = host, sample.pace

    def changes(self, living: Collection[int]) -> list[Verdict]:
        """Verdicts since the last call. Empty while a rank has not reported, and after the first rank has exited."""
        if len(living) < self._expected or len(self._paces) < self._expected:
            return []
        paces = dict(self._paces)
        self._paces.clear()
        return self._ranks.look(paces)
