"""Command lines with their variables, quoted for a shell. No other module quotes shell words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field

from echelon.record import record

SHELL_KEYWORDS = frozenset(
    {"case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then", "time"}
    | {"until", "while"}
)
LINE_LENGTH = 120  # characters per line
_VARIABLE = re.compile("\0(\\w+)\0")
_ARRAY = re.compile("\0@(\\w*)\0")


@record
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def shell_lines(self, *, replace_shell: bool = False) -> tuple[str, ...]:
        """Lines for a POSIX shell: exports, then the command. With `replace_shell` the command is an exec."""
        line = " ".join((_quote_program(self.argv[0]), *map(_quote, self.argv[1:])))
        return (*export_lines(self.env), f"exec {line}" if replace_shell else line)


def shell_variable(name: str) -> str:
    """A placeholder in a word that becomes `"$name"`. NUL marks it, because words and paths cannot contain NUL."""
    return f"\0{name}\0"


def shell_array(array: str = "") -> str:
    """A placeholder word that becomes all elements of a bash array, or without a name all arguments of the shell."""
    return f"\0@{array}\0"


def _quote(word: str) -> str:
    """Quotes each text between placeholders separately."""
    if "\0" not in word:
        return shlex.quote(word)
    many = _ARRAY.fullmatch(word)
    if many is not None:
        return f'"${{{many[1]}[@]}}"' if many[1] else '"$@"'
    texts_and_names = _VARIABLE.split(word)
    pieces = (f'"${piece}"' if i % 2 else shlex.quote(piece) for i, piece in enumerate(texts_and_names) if piece)
    return "".join(pieces)


def _quote_program(word: str) -> str:
    """Quoted also if a shell would read it as an assignment or a keyword: `A=b`, `if`."""
    quote_word = _quote(word)
    return f"'{word}'" if quote_word == word and ("=" in word or word in SHELL_KEYWORDS) else quote_word


def fold_command(argv: Sequence[str], ending: str = "") -> tuple[str, ...]:
    """One command, continued over lines of at most about 120 characters."""
    return _fold((_quote_program(argv[0]), *map(_quote, argv[1:])), ending)


def fold_exports(environ: Mapping[str, str]) -> tuple[str, ...]:
    """One export command for all variables, continued over several lines for readability."""
    return _fold(("export", *(f"{name}={_quote(value)}" for name, value in sorted(environ.items()))))


def _fold(pieces: Sequence[str], ending: str = "") -> tuple[str, ...]:
    lines = [pieces[0]]
    for word in pieces[1:]:
        if len(lines[-1]) + len(word) < LINE_LENGTH:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f"  {word}")
    lines[-1] += ending
    return tuple(lines)


def quote_word(word: str) -> str:
    """One word for a POSIX shell. qsub also takes text in single or double quotes literally."""
    return shlex.quote(word)


def quote_words(*argv: str) -> str:
    """Several words as part of a line: elements of an array, or arguments of a function."""
    return " ".join(map(_quote, argv))


def export_lines(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"export {name}={_quote(value)}" for name, value in sorted(environ.items()))


def format_command(argv: Sequence[str]) -> str:
    """The command as a user would type it, for messages."""
    return shlex.join(argv)
