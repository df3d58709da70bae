"""A command line with its variables; the only place in the package that quotes for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KEYWORDS = frozenset(
    {"case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then", "time"}
    | {"until", "while"}
)


READABLE = 120  # letters in a line
_VARIABLE = re.compile("\0(\\w+)\0")
_SPREAD = re.compile("\0@(\\w*)\0")


@dataclass(frozen=True, kw_only=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def shell_lines(self, *, replace_shell: bool = False) -> tuple[str, ...]:
        """What a POSIX shell must read; with replace_shell the last line is an exec."""
        line = " ".join((_program(self.argv[0]), *map(_quoted, self.argv[1:])))
        return (*exports(self.env), f"exec {line}" if replace_shell else line)


def variable(name: str) -> str:
    """A place in a word that the shell fills in; NUL marks it, which no word and no path can hold."""
    return f"\0{name}\0"


def spread(array: str = "") -> str:
    """A word that becomes as many as an array of bash holds, or as the shell itself was given."""
    return f"\0@{array}\0"


def _quoted(word: str) -> str:
    """Piece by piece: what lies between variables is quoted for itself."""
    if "\0" not in word:
        return shlex.quote(word)
    many = _SPREAD.fullmatch(word)
    if many is not None:
        return f'"${{{many[1]}[@]}}"' if many[1] else '"$@"'
    texts_and_names = _VARIABLE.split(word)
    pieces = (f'"${piece}"' if i % 2 else shlex.quote(piece) for i, piece in enumerate(texts_and_names) if piece)
    return "".join(pieces)


def _program(word: str) -> str:
    """Quoted so that no shell takes it for an assignment or a keyword: `A=b`, `if`."""
    quoted = _quoted(word)
    return f"'{word}'" if quoted == word and ("=" in word or word in KEYWORDS) else quoted


def folded(argv: Sequence[str], ending: str = "") -> tuple[str, ...]:
    """One command over as many lines as it needs to be read."""
    return _fold((_program(argv[0]), *map(_quoted, argv[1:])), ending)


def exporting(environ: Mapping[str, str]) -> tuple[str, ...]:
    """All variables by one command, for a person to read."""
    return _fold(("export", *(f"{name}={_quoted(value)}" for name, value in sorted(environ.items()))))


def _fold(pieces: Sequence[str], ending: str = "") -> tuple[str, ...]:
    lines = [pieces[0]]
    for word in pieces[1:]:
        if len(lines[-1]) + len(word) < READABLE:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f"  {word}")
    lines[-1] += ending
    return tuple(lines)


def quoted(word: str) -> str:
    """One word for a POSIX shell; qsub, too, takes what stands between quotes of either kind as it is."""
    return shlex.quote(word)


def words(*argv: str) -> str:
    """Several, as part of a line: the elements of an array, the arguments of a function."""
    return " ".join(map(_quoted, argv))


def exports(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"export {name}={_quoted(value)}" for name, value in sorted(environ.items()))


def typed(argv: Sequence[str]) -> str:
    """How a person would type it, for messages."""
    return shlex.join(argv)
