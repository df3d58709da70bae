"""Which checkpoints may go: a pure function of what is there and what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.names import Name

LEAST = 2
"""However few are asked for: the newest may turn out to be damaged when it is needed."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A checkpoint as retention sees it."""

    name: Name
    good: bool
    score: float | None = None
    parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retention:
    last: int = 3
    every: int | None = None
    best: str | None = None
    """`min` or `max` of the score that save() was given."""

    def __post_init__(self) -> None:
        if self.last < LEAST:
            raise _bad(f"keep is {self.last}", f"at least {LEAST} are kept: the newest may turn out damaged")
        if self.every is not None and self.every < 1:
            raise _bad(f"keep_every is {self.every}", "it is a number of steps, 1 or more")
        if self.best not in (None, "min", "max"):
            raise _bad(f"keep_best is {self.best!r}", "it is 'min' or 'max'")


def _bad(what: str, why: str) -> ConfigError:
    return ConfigError(what, origin="echelon.Checkpoint", why=why)


def dispensable(present: Sequence[Kept], rules: Retention) -> list[Name]:
    """Both in the order of commits, oldest first: a later commit may be of an earlier step.

    A damaged one counts for nothing, and goes once there are enough good ones after it. What the newest came from
    stays: whoever goes back to step 500 has nothing else to fall back on when 600 turns out damaged.
    """
    good = [kept for kept in present if kept.good]
    if len(good) < rules.last:
        return []
    older = present[: present.index(good[-rules.last])]
    milestones = {kept.name for kept in good if rules.every and kept.name.step % rules.every == 0}
    origin = {kept.name for kept in good if str(kept.name) == good[-1].parent}
    precious = milestones | origin | _best(good, rules)
    return [kept.name for kept in older if kept.name not in precious]


def _best(good: Sequence[Kept], rules: Retention) -> set[Name]:
    scored = [(kept.score, kept.name) for kept in reversed(good) if kept.score is not None]
    if rules.best is None or not scored:
        return set()
    sign = 1 if rules.best == "min" else -1
    return {min(scored, key=lambda pair: sign * pair[0])[1]}  # of equals the newest
