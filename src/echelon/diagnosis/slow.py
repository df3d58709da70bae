"""Which rank slows the others down, and why: from the pace of all ranks to a verdict. Pure.

In synchronous training every rank has the same step time, because the fast ranks wait for the slow one in a
collective. The slow rank is the one with the most time of its own: input and computation, without that wait.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from echelon.diagnosis.pace import Pace, median
from echelon.record import record
from echelon.text import format_ranks_with_host

SLOW_FACTOR = 1.5
"""A rank is slow if its own time is this multiple of the median of the other ranks. Four healthy ranks that share two
busy cores differ by up to 1.25."""
LEAST_EXCESS_SECONDS = 0.005
"""Per step. Less is the noise of the operating system."""
INPUT_SHARE = 0.5
"""The cause is the input if it explains this share of the excess. Without times of collectives, a rank waits for its
input if that is this share of its step."""
USUAL_INPUT_SHARE = 0.1
CHRONIC_LOOKS = 6
"""A rank is slow for good after this many looks in a row, and normal again after as many."""
ONCE_FACTOR = 3.0
ONCE_SECONDS = 10.0
"""A passing slowness is worth an event if it is this strong and has cost this much."""


class Reason(str, enum.Enum):
    INPUT = "waiting for input"
    OWN_CODE = "in its own code"
    UNKNOWN = "in its own code or its input"


class Change(str, enum.Enum):
    CHRONIC = "chronic"
    ONCE = "once"
    ENDED = "ended"


@record
class Share:
    """The mean step of one rank, in seconds."""

    seconds: float
    input: float | None
    own: float | None
    """Without the wait for other ranks in collectives. None if that wait is unknown."""

    @property
    def wait(self) -> float | None:
        return None if self.own is None else self.seconds - self.own


@record
class Slowness:
    """How slow a rank is in one look."""

    reason: Reason
    factor: float | None
    """Its own time as a multiple of the median. None if unknown."""
    excess: float
    """Seconds per step."""
    share: float = 0.0
    """The share of its step in which it waits for input."""


@record
class Verdict:
    change: Change
    ranks: tuple[int, ...]
    sentence: str
    since_step: int
    reason: Reason
    factor: float | None = None


def step_shares(paces: Mapping[int, Pace]) -> dict[int, Share]:
    """The shares of each rank. Waits are known only if all ranks call the same collectives in each step."""
    known = all(pace.arrivals is not None for pace in paces.values())
    comparable = known and len({(pace.pattern, len(pace.arrivals or ())) for pace in paces.values()}) == 1
    waits = _collective_waits(paces) if comparable else None
    return {
        rank: Share(
            seconds=pace.seconds,
            input=pace.input_seconds,
            own=None if waits is None else max(0.0, pace.seconds - waits[rank]),
        )
        for rank, pace in paces.items()
    }


def _collective_waits(paces: Mapping[int, Pace]) -> dict[int, float]:
    """Seconds in which each rank waits for the last one to arrive, in the collective of a step that costs it most.

    The waits are not summed. DDP calls several collectives in a backward pass without waiting for them, so that one
    delay is seen in each of them, and a sum would make a large difference out of a small one.
    """
    arrivals = {rank: pace.arrivals or () for rank, pace in paces.items()}
    count = min(map(len, arrivals.values()), default=0)
    last = [max(times[index] for times in arrivals.values()) for index in range(count)]
    return {rank: max(_wait_times(times, last), default=0.0) for rank, times in arrivals.items()}


def _wait_times(times: Sequence[float], last: Sequence[float]) -> list[float]:
    """A rank that calls the next collective before the last rank arrives at this one has not waited in it."""
    following = (*times[1:], float("inf"))
    rows = zip(times, following, last, strict=False)  # `following` is longer if there are no collectives
    return [latest - own if after >= latest else 0.0 for own, after, latest in rows]


def slow_ranks(shares: Mapping[int, Share]) -> dict[int, Slowness]:
    """The ranks that are slow in this look. Ranks that wait for them are not among them."""
    if len(shares) < 2:
        return {}
    found = {
        rank: _slowness(share, [shares[other] for other in shares if other != rank]) for rank, share in shares.items()
    }
    return {rank: slowness for rank, slowness in found.items() if slowness is not None}


def _slowness(share: Share, others: Sequence[Share]) -> Slowness | None:
    inputs = [other.input for other in others if other.input is not None]
    usual_input = median(inputs) if len(inputs) == len(others) else None
    if share.own is None:
        return _input_bound(share, usual_input)
    usual = median([other.own or 0.0 for other in others])
    excess = share.own - usual
    if excess < LEAST_EXCESS_SECONDS or share.own < SLOW_FACTOR * usual:
        return None
    factor = share.own / usual if usual > 0 else None
    return Slowness(reason=_reason(share, usual_input, excess), factor=factor, excess=excess)


def _input_bound(share: Share, usual: float | None) -> Slowness | None:
    """Without times of collectives: a rank that spends most of its step on input that the others have at once."""
    if share.input is None or usual is None or share.seconds <= 0:
        return None
    excess, part = share.input - usual, share.input / share.seconds
    if excess < LEAST_EXCESS_SECONDS or part < INPUT_SHARE or usual > USUAL_INPUT_SHARE * share.seconds:
        return None
    return Slowness(reason=Reason.INPUT, factor=None, excess=excess, share=part)


def _reason(share: Share, usual_input: float | None, excess: float) -> Reason:
    if share.input is None or usual_input is None:
        return Reason.UNKNOWN
    return Reason.INPUT if share.input - usual_input >= INPUT_SHARE * excess else Reason.OWN_CODE


@dataclass
class Episode:
    """The looks in which a rank was slow in a row."""

    since_step: int
    looks: int = 0
    normal_looks: int = 0
    lost_seconds: float = 0.0
    slowest: Slowness | None = None
    reported: bool = False

    def add(self, slowness: Slowness, steps: int) -> None:
        self.looks, self.normal_looks = self.looks + 1, 0
        self.lost_seconds += slowness.excess * steps
        if self.slowest is None or slowness.excess >= self.slowest.excess:
            self.slowest = slowness


@dataclass
class SlowRanks:
    """The episodes of all ranks of a generation."""

    hosts: Mapping[int, str] = field(default_factory=dict)
    """The host of each rank."""
    _episodes: dict[int, Episode] = field(default_factory=dict)
    _once: set[int] = field(default_factory=set)
    _last_step: int = 0

    def look(self, paces: Mapping[int, Pace]) -> list[Verdict]:
        """The changes since the last look, from a new pace of every rank."""
        slow = slow_ranks(step_shares(paces))
        step = max((pace.step for pace in paces.values()), default=0)
        steps = max(1, step - self._last_step) if self._last_step else 1
        changes: dict[tuple[Change, Reason], list[int]] = {}
        for rank in sorted({*slow, *self._episodes}):
            first = paces[rank].step - paces[rank].steps + 1 if rank in paces else step
            change = self._update(rank, slow.get(rank), first, steps)
            episode = self._episodes[rank]
            if change is not None and episode.slowest is not None:
                changes.setdefault((change, episode.slowest.reason), []).append(rank)
        verdicts = [self._verdict(change, ranks) for (change, _), ranks in changes.items()]
        self._forget_ended()
        self._last_step = step
        return verdicts

    def _update(self, rank: int, slowness: Slowness | None, first_step: int, steps: int) -> Change | None:
        episode = self._episodes.setdefault(rank, Episode(since_step=first_step))
        if slowness is None:
            episode.normal_looks += 1
            return self._end(rank, episode)
        if not episode.reported and episode.normal_looks:
            self._episodes[rank] = episode = Episode(since_step=first_step)
        episode.add(slowness, steps)
        if episode.reported or episode.looks < CHRONIC_LOOKS:
            return None
        episode.reported = True
        return Change.CHRONIC

    def _end(self, rank: int, episode: Episode) -> Change | None:
        if episode.reported:
            return Change.ENDED if episode.normal_looks == CHRONIC_LOOKS else None
        worst = episode.slowest
        strong = worst is not None and (worst.factor or 0.0) >= ONCE_FACTOR and episode.lost_seconds >= ONCE_SECONDS
        if episode.normal_looks > 1 or not strong or rank in self._once:
            return None
        self._once.add(rank)
        return Change.ONCE

    def _forget_ended(self) -> None:
        ended = [
            rank
            for rank, episode in self._episodes.items()
            if episode.normal_looks >= (CHRONIC_LOOKS if episode.reported else 1)
        ]
        for rank in ended:
            del self._episodes[rank]

    def _verdict(self, change: Change, ranks: Collection[int]) -> Verdict:
        episodes = [self._episodes[rank] for rank in ranks]
        worst = max((one.slowest for one in episodes if one.slowest), key=lambda one: (one.factor or 0.0, one.share))
        since = min(episode.since_step for episode in episodes)
        who = format_ranks_with_host({rank: self.hosts.get(rank, "") for rank in ranks})
        sentence = _sentence(change, who, len(ranks) > 1, worst, since)
        return Verdict(
            change=change,
            ranks=tuple(ranks),
            sentence=sentence,
            since_step=since,
            reason=worst.reason,
            factor=None if worst.factor is None else round(worst.factor, 2),
        )


def _sentence(change: Change, who: str, several: bool, worst: Slowness, since: int) -> str:
    reason = worst.reason.value.replace("its", "their") if several else worst.reason.value
    if change is Change.ENDED:
        return f"{who} {'are' if several else 'is'} no longer slow"
    if worst.factor is None:
        verb = "wait" if several else "waits"
        return f"{who} {verb} for input in {worst.share:.0%} of each step since step {since}; the other ranks do not"
    much = f"{worst.factor:.1f}x slower than the median"
    if change is Change.ONCE:
        return f"{who} {'were' if several else 'was'} once {much}, from step {since}: {reason}"
    return f"{who} {'are' if several else 'is'} {much} since step {since}: {reason}"
