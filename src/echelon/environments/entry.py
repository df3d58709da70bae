"""What an environment adds to node.sh."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.command import words

INSIDE = "--inside"
"""What node.sh is told when it is run for the second time, in the container."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    place: str
    """What is to blame when something is missing there."""
    lines: tuple[str, ...] = ()
    """Of bash, on the node itself."""
    wrapper: tuple[str, ...] = ()
    """The words that run a command in the container, where there is one."""
    is_inside: bool = False
    """node.sh itself is run in the container."""

    @property
    def is_image(self) -> bool:
        return self.is_inside or bool(self.wrapper)


def refuse(what: str, hint: str) -> str:
    """A call of the function of that name in node.sh."""
    return words("refuse", what, hint)
