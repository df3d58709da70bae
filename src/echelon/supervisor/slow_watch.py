"""Collects the pace of all ranks and reports the ranks that slow the others down. It never stops or restarts a rank."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from echelon.diagnosis.pace import Pace
from echelon.diagnosis.slow import SlowRanks, Verdict
from echelon.wire.messages import Sample


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
