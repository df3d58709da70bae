"""The evidence of one hang, prepared for the rules that explain it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from echelon.diagnosis.activity import Activity, ActivityKind, classify
from echelon.diagnosis.evidence import RankEvidence
from echelon.diagnosis.hang_text import describe_activity, format_activity
from echelon.diagnosis.matching import Wait, find_waits
from echelon.diagnosis.ranks import format_ranks, format_ranks_with_host


@dataclass(frozen=True, kw_only=True)
class Case:
    ranks: Mapping[int, RankEvidence]
    activities: Mapping[int, Activity]
    waits: tuple[Wait, ...]
    finished: tuple[int, ...]
    idle_seconds: float

    @property
    def waiting(self) -> list[int]:
        return [rank for rank, activity in self.activities.items() if activity.waits_for_ranks]

    @property
    def held_up(self) -> list[int]:
        """Ranks that wait for no other rank."""
        return [rank for rank, activity in self.activities.items() if not activity.waits_for_ranks]

    def of_kind(self, kind: ActivityKind) -> list[int]:
        return [rank for rank, activity in self.activities.items() if activity.kind is kind]

    def named(self, ranks: Collection[int]) -> str:
        return format_ranks_with_host({rank: self.ranks[rank].host for rank in ranks})

    def seconds(self, rank: int) -> float:
        return self.ranks[rank].idle_seconds or self.idle_seconds

    def doing(self, culprits: Sequence[int]) -> str:
        """What the culprits do. If they do different things, what the first of them does."""
        number = len(culprits) if self._is_shared(culprits) else 1
        what = format_activity(self.activities[culprits[0]], ranks=number, seconds=self.seconds(culprits[0]))
        if self._is_shared(culprits):
            return f"{'it' if number == 1 else 'they'} {what}"
        return f"{format_ranks(culprits[:1])} {what}"

    def named_doing(self, culprits: Sequence[int]) -> str:
        """The same with the names of the culprits."""
        if not self._is_shared(culprits):
            return f"{self.named(culprits)} are not in a collective; {self.doing(culprits)}"
        activity, seconds = self.activities[culprits[0]], self.seconds(culprits[0])
        return f"{self.named(culprits)} {format_activity(activity, ranks=len(culprits), seconds=seconds)}"

    def _is_shared(self, culprits: Sequence[int]) -> bool:
        return len({describe_activity(self.activities[rank]) for rank in culprits}) == 1


def prepare_case(ranks: Sequence[RankEvidence], *, idle_seconds: float, finished: Collection[int]) -> Case:
    by_rank = {one.rank: one for one in sorted(ranks, key=lambda one: one.rank)}
    return Case(
        ranks=by_rank,
        activities={rank: classify(one) for rank, one in by_rank.items()},
        waits=find_waits(ranks),
        finished=tuple(sorted(finished)),
        idle_seconds=idle_seconds,
    )
