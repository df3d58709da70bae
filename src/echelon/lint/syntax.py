"""The parts of a shell script that rules look at: words, commands and assignments, in the order of the text."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Union

from echelon.record import record


class PartKind(enum.Enum):
    TEXT = "literal text"
    VARIABLE = "$NAME"
    ARRAY = "${NAME[@]}"
    OTHER_EXPANSION = "${NAME%...} and the like"
    COMMAND = "$(...)"
    ARITHMETIC = "$((...))"


@record
class Part:
    kind: PartKind
    text: str
    """The literal text, the name of the variable, or the source between the brackets."""
    quoted: bool = False
    default: str | None = None
    """The text after `:-`. None if there is none."""
    inner: tuple[Statement, ...] = ()
    """The statements of a command substitution."""


@record
class Word:
    parts: tuple[Part, ...]
    line: int
    raw: str

    @property
    def literal(self) -> str | None:
        """The text, if nothing in it is expanded."""
        is_literal = all(part.kind is PartKind.TEXT for part in self.parts)
        return "".join(part.text for part in self.parts) if is_literal else None


@record
class Scope:
    """Where a statement is."""

    function: str | None = None
    conditional: bool = False
    """In a branch, a loop, a function, or right of && or ||: it may not run, or run more than once."""
    loop: bool = False
    background: bool = False
    tested: bool = False
    """The script looks at its exit code: if, while, !, left of && or ||."""


@record
class Assignment:
    name: str
    line: int
    scope: Scope
    value: Word | None = None
    """None if the value is not known, as in `for NAME in` and `read NAME`."""
    items: tuple[Word, ...] | None = None
    """The elements of an array."""
    append: bool = False
    exported: bool = False


@record
class Command:
    words: tuple[Word, ...]
    line: int
    end: int
    scope: Scope
    prefix: tuple[Assignment, ...] = ()
    """Variables for this command only: `A=1 command`."""
    pipe_to: tuple[Command, ...] = ()
    """The commands to the right of it in a pipeline."""

    @property
    def name(self) -> str:
        """The program without its folder; empty if it is not literal."""
        literal = self.words[0].literal if self.words else None
        return (literal or "").rpartition("/")[2]


Statement = Union[Command, Assignment]


@record
class Comment:
    line: int
    column: int
    text: str


@record
class Shell:
    """A parsed script."""

    statements: tuple[Statement, ...] = ()
    comments: tuple[Comment, ...] = ()
    functions: frozenset[str] = field(default_factory=frozenset)
    exported: frozenset[str] = field(default_factory=frozenset)
    """Names of `export NAME` without a value."""
    broken: tuple[int, int] | None = None
    """First and last line of the first part that is not valid bash."""

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(one for one in self.statements if isinstance(one, Command))

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return tuple(one for one in self.statements if isinstance(one, Assignment))
