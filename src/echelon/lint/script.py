"""One job script with everything that rules look at: directives, request, statements, launches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from echelon.lint.directives import Dialect, Directive, active_directives, dialect_of, options_of
from echelon.lint.launches import Launch, expand, find_launches
from echelon.lint.model import Skipped, names
from echelon.lint.parse import parse_shell
from echelon.lint.request import Request, request_of
from echelon.lint.syntax import Command, Shell
from echelon.lint.values import Values, number_of
from echelon.lint.words import without_markers
from echelon.record import record

TEMPLATE = re.compile(r"!TBG_|\{\{|\{%|<%|%%\w+%%|^\s*%\s*(if|for)\b|@[A-Z][A-Z_]+@|#SBATCH.*=\{\w+\}", re.MULTILINE)
"""Marks of programs that fill in a script before it is submitted."""
INTERPRETER = re.compile(r"#!\s*(\S+)(.*)")
SHELL_NAMES = names("sh bash dash ksh zsh")
TOO_DEEP = "nested too deeply"


@record
class Source:
    """A script, or a block of a document."""

    path: str
    text: str
    first_line: int = 1
    title: str = ""
    """The name of the script in a document."""
    document: str = ""
    """The text of the whole file."""
    is_fragment: bool = False
    """From a document, where a block may be only a part of a script."""


class JobScript:
    """A parsed script. Everything else is derived from it when a rule asks for it."""

    def __init__(self, source: Source, companion: Callable[[str], Source | None] | None = None) -> None:
        """`companion` finds another script by its name: in the same folder, or in the same document."""
        self.source = source
        self._companion = companion
        text = without_markers(source.text)
        self.lines = text.split("\n")
        self.shell = parse_shell(text, source.first_line) if self.is_shell else Shell()
        if self.shell.broken is not None:
            self.shell = replace(self.shell, statements=())

    @cached_property
    def shebang(self) -> re.Match[str] | None:
        return INTERPRETER.match(self.lines[0])

    @property
    def is_shell(self) -> bool:
        """sbatch takes scripts for any interpreter. Those that are not for a shell have only directives here."""
        if self.shebang is None:
            return True
        words = f"{self.shebang[1]} {self.shebang[2]}".split()
        programs = [word.rpartition("/")[2] for word in words]
        program = next((one for one in programs if one != "env" and not one.startswith("-")), "")
        return program in SHELL_NAMES

    @cached_property
    def dialect(self) -> Dialect | None:
        return dialect_of(self.lines)

    @cached_property
    def directives(self) -> tuple[Directive, ...]:
        if self.dialect is None:
            return ()
        return active_directives(self.lines, self.source.first_line, self.dialect)

    @cached_property
    def request(self) -> Request:
        if any(not one.known and one.name in ("hetjob", "packjob") for d in self.directives for one in d.options):
            return Request(dialect=self.dialect)
        return request_of(self.dialect, options_of(self.directives))

    @property
    def is_batch(self) -> bool:
        """Whether the scheduler runs it, on the first node. A script without directives may be run by srun on each."""
        return bool(self.directives)

    @cached_property
    def is_whole(self) -> bool:
        """Whether nothing is missing: a block of a document may show only the lines that matter there."""
        return not self.source.is_fragment or self.shebang is not None or (self.is_batch and bool(self.launches))

    @cached_property
    def is_template(self) -> bool:
        return TEMPLATE.search(self.source.text) is not None

    @cached_property
    def values(self) -> Values:
        return Values(self.shell.statements)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        found = find_launches(self.shell.statements, self.values)
        return tuple(self._with_option_lines(one) for one in found if self._is_called(one.command.scope.function))

    def _is_called(self, function: str | None) -> bool:
        """Whether the name of a function is somewhere else than at its definition."""
        if function is None:
            return True
        uses = re.findall(rf"(?<![\w-]){re.escape(function)}(?![\w-])(?!\s*\(\s*\))", "\n".join(self.code_lines))
        definitions = re.findall(rf"\bfunction\s+{re.escape(function)}(?!\s*\(\s*\))", "\n".join(self.code_lines))
        return len(uses) > len(definitions)

    def _with_option_lines(self, launch: Launch) -> Launch:
        """With the lines at which options are written: an option may come from a variable that is set before."""
        return replace(
            launch,
            options={
                name: replace(option, line=self._line_with(option.word, option.line))
                for name, option in launch.options.items()
            },
        )

    def _line_with(self, word: str, line: int) -> int:
        if word in self.line(line) or line - self.source.first_line >= len(self.lines):
            return line
        earlier = range(line - 1, self.source.first_line - 1, -1)
        later = range(line, self.source.first_line + len(self.lines))
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        return next((one for one in (*earlier, *later) if pattern.search(self.line(one))), line)

    def task_script(self, launch: Launch) -> JobScript | None:
        """The script beside this one that `srun bash task.sh` runs. None if it is in another folder, or unknown."""
        word = next((one for one in launch.words[:2] if one.endswith((".sh", ".bash"))), "").removeprefix("./")
        source = self._companion(word) if self._companion is not None and word and "/" not in word else None
        found = parse_script(source) if source is not None else None
        return found if isinstance(found, JobScript) else None

    @cached_property
    def commands(self) -> tuple[tuple[int, Command, tuple[str, ...]], ...]:
        """Index among the statements, command, and its expanded words."""
        return tuple(
            (index, one, tuple(expand(one, self.values, index)[0]))
            for index, one in enumerate(self.shell.statements)
            if isinstance(one, Command) and one.words
        )

    def number(self, text: str) -> int | None:
        return number_of(text, self.request.variables)

    def line(self, number: int) -> str:
        """The source of a line, by its number in the file."""
        index = number - self.source.first_line
        return self.lines[index].strip() if 0 <= index < len(self.lines) else ""

    def mentions(self, pattern: str) -> bool:
        """Whether a line that is not a comment matches."""
        return any(re.search(pattern, line) for line in self.code_lines)

    @cached_property
    def code_lines(self) -> tuple[str, ...]:
        return tuple(line for line in self.lines if not line.lstrip().startswith("#"))

    @cached_property
    def set_options(self) -> frozenset[str]:
        """Options of the shell that the script sets: errexit, pipefail, nounset."""
        found = _parse_flags(self.shebang[2]) if self.shebang is not None else set()
        for _, command, words in self.commands:
            if command.name == "set":
                found |= _parse_flags(" ".join(words[1:]))
        return frozenset(found)


def _parse_flags(text: str) -> set[str]:
    found = {name for name in ("errexit", "pipefail", "nounset") if re.search(rf"-o\s+{name}\b", text)}
    for word in re.findall(r"(?:^|\s)-([A-Za-z]+)", text):
        found |= {name for letter, name in (("e", "errexit"), ("u", "nounset")) if letter in word}
    if re.search(r"(?:^|\s)-[a-z]*o\s+pipefail\b", text):
        found.add("pipefail")
    return found


def parse_script(source: Source, companion: Callable[[str], Source | None] | None = None) -> JobScript | Skipped:
    try:
        return JobScript(source, companion)
    except RecursionError:
        return Skipped(path=source.path, reason=TOO_DEEP)
