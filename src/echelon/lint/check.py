"""Checks scripts by all rules, and leaves out what a comment ignores. Pure, apart from the parser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from echelon.lint.model import Finding, Hit, Rule, Skipped
from echelon.lint.rules import BY_ID
from echelon.lint.script import JobScript, Source
from echelon.text import suggest_closest

IGNORE = re.compile(r"echelon:\s*ignore(?P<file>-file)?\[(?P<rules>[^\]]*)\]")
SHELLCHECK_RULE = re.compile(r"SC\d{4}")
TOO_DEEP = "nested too deeply"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """The rules that comments of a file switch off."""

    everywhere: frozenset[str]
    on_line: dict[int, frozenset[str]]

    def covers(self, finding: Finding) -> bool:
        """A comment counts on the line itself, above it, and above the statement that the line belongs to."""
        lines = (finding.line, finding.line - 1, finding.start, finding.start - 1)
        return finding.rule in self.everywhere or any(finding.rule in self.on_line.get(line, ()) for line in lines)

    @property
    def names(self) -> set[str]:
        return set(self.everywhere).union(*self.on_line.values())


def read_ignored(text: str) -> Ignored:
    everywhere: set[str] = set()
    on_line: dict[int, frozenset[str]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for found in IGNORE.finditer(line):
            rules = frozenset(name.strip() for name in found["rules"].split(",") if name.strip())
            if found["file"]:
                everywhere |= rules
            else:
                on_line[number] = on_line.get(number, frozenset()) | rules
    return Ignored(everywhere=frozenset(everywhere), on_line=on_line)


def unknown_names(path: str, ignored: Ignored) -> Iterator[Skipped]:
    """A note for each comment that names a rule which does not exist."""
    for name in sorted(ignored.names):
        if name not in BY_ID and not SHELLCHECK_RULE.fullmatch(name):
            guess = suggest_closest(name, BY_ID)
            yield Skipped(path=path, reason=f"unknown rule {name!r} in a comment{f'; {guess}' if guess else ''}")


def parse_script(source: Source) -> JobScript | Skipped:
    try:
        return JobScript(source)
    except RecursionError:
        return Skipped(path=source.path, reason=TOO_DEEP)


def check_script(script: JobScript, rules: Sequence[Rule]) -> Iterator[Finding]:
    for rule in rules:
        for hit in rule.check(script):
            yield _finding(script, rule, hit)


def _finding(script: JobScript, rule: Rule, hit: Hit) -> Finding:
    return Finding(
        path=script.source.path,
        line=hit.line,
        rule=rule.id,
        severity=hit.severity or rule.severity,
        sentence=hit.sentence,
        practice=hit.practice or rule.practice,
        fix=hit.fix,
        start=hit.start or hit.line,
    )


def broken_note(script: JobScript) -> Skipped | None:
    """Says which lines are not bash. Of such a script only the directives are checked."""
    if script.shell.broken is None:
        return None
    first, last = script.shell.broken
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    return Skipped(path=script.source.path, reason=f"{where}: not valid bash; only directives were checked")


def without_ignored(findings: Iterable[Finding], ignored: Ignored) -> list[Finding]:
    return sorted(
        {one for one in findings if not ignored.covers(one)}, key=lambda one: (one.line, one.severity.value, one.rule)
    )
