"""Where to go on when the newest checkpoint is damaged: from one that it came from, not from an abandoned way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.names import Name


@dataclass(frozen=True, kw_only=True)
class Descent:
    """A checkpoint, and the one that its training came from."""

    name: Name
    parent: str | None = None
    """Empty for training from nothing; None where nobody says, as in a manifest that cannot be read or is old."""


def by_descent(found: Sequence[Descent]) -> list[Name]:
    """In the order in which to try them: the last commit, what it came from, what that came from, and then the rest,
    the last commit first. `found` is in the order of commits, oldest first."""
    earlier, line = list(found), []
    while earlier:
        one = earlier.pop()
        line.append(one.name)
        del earlier[_up_to_the_ancestor(earlier, one.parent) :]
    return line + [one.name for one in reversed(found) if one.name not in line]


def _up_to_the_ancestor(earlier: Sequence[Descent], parent: str | None) -> int:
    """How many there are up to it and with it; 0 where there is none.

    Where nobody says it is the commit before. Where it has been removed it is the last one that is no later a step:
    what lies beyond the step that training came from is surely of another way.
    """
    if parent == "":
        return 0
    origin = None if parent is None else names.parse(parent)
    if origin is None:
        return len(earlier)
    exact = [count for count, one in enumerate(earlier, start=1) if one.name == origin]
    likely = [count for count, one in enumerate(earlier, start=1) if one.name.step <= origin.step]
    return max(exact or likely, default=0)
