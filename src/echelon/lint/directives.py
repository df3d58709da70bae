"""The `#SBATCH` and `#PBS` lines of a script, read as sbatch and qsub read them."""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterator, Sequence

from echelon.lint.slurm_options import Given, parse_options
from echelon.record import record


class Dialect(enum.Enum):
    SBATCH = "#SBATCH"
    QSUB = "#PBS"


@record
class Directive:
    line: int
    text: str
    dialect: Dialect
    options: tuple[Given, ...]


@record
class Option:
    """One option of the request, with its line."""

    name: str
    value: str
    line: int
    text: str
    """The whole directive."""


def dialect_of(lines: Sequence[str]) -> Dialect | None:
    """By the first directive, also one that is dead."""
    for line in lines:
        found = re.match(r"\s*#(SBATCH|PBS)\b|\s*#\s+(SBATCH|PBS)\s+-[\w-]", line)
        if found is not None:
            return Dialect(f"#{found[1] or found[2]}")
    return None


def first_command_line(lines: Sequence[str]) -> int:
    """Index of the first line that is neither blank nor a comment: sbatch and qsub stop reading there."""
    for index, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            return index
    return len(lines)


def active_directives(lines: Sequence[str], first_line: int, dialect: Dialect) -> tuple[Directive, ...]:
    end = first_command_line(lines)
    return tuple(
        _directive(line, index + first_line, dialect)
        for index, line in enumerate(lines[:end])
        if line.startswith(dialect.value)
    )


def _directive(line: str, number: int, dialect: Dialect) -> Directive:
    words = split_words(line.removeprefix(dialect.value))
    options = parse_options(words) if dialect is Dialect.SBATCH else _qsub_options(words)
    return Directive(line=number, text=line.strip(), dialect=dialect, options=tuple(options))


def split_words(text: str) -> list[str]:
    """As sbatch splits a line: quotes are honoured, and a `#` after a blank begins a comment."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # an open quote, as in a comment with an apostrophe
        return re.sub(r"(^|\s)#.*", "", text).split()


def _qsub_options(words: Sequence[str]) -> Iterator[Given]:
    """`-l select=2:ncpus=4,walltime=1:00:00` becomes one option for each resource."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not re.match(r"-[A-Za-z]", word):
            continue
        letter = word[1]
        value = word[2:] or (rest.pop(0) if rest and not rest[0].startswith("-") else "")
        if letter != "l":
            yield Given(name=letter, value=value, word=word)
            continue
        for resource in re.split(r",(?=[A-Za-z_]+(?:=|,|$))", value):
            name, _, amount = resource.partition("=")
            yield Given(name=f"l.{name}", value=amount, word=word)


def options_of(directives: Sequence[Directive]) -> tuple[Option, ...]:
    return tuple(
        Option(name=one.name, value=one.value, line=directive.line, text=directive.text)
        for directive in directives
        for one in directive.options
        if one.known
    )


def last_option(options: Sequence[Option], *names: str) -> Option | None:
    """sbatch takes the last value of an option that is given twice."""
    return next((one for one in reversed(options) if one.name in names), None)
