"""Checks scripts by the chosen rules, leaves out what a comment ignores, and makes one report of all files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from echelon.errors import ConfigError
from echelon.lint.migrate.command import find_replacement
from echelon.lint.model import Finding, Hit, Replacement, Report, Rule, Skipped
from echelon.lint.rules import BY_ID, RULES
from echelon.lint.script import JobScript, Source, parse_script
from echelon.lint.shellcheck import run_shellcheck
from echelon.lint.sources import find_companion, find_files, read_sources
from echelon.record import record
from echelon.text import suggest_closest

IGNORE = re.compile(r"echelon:\s*ignore(?P<file>-file)?\[(?P<rules>[^\]]*)\]")
SHELLCHECK_RULE = re.compile(r"SC\d{4}")
EVERY_RULE = "echelon lint --rules lists them"


@record
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


# Rules chosen by --select and --ignore


def split_names(texts: Iterable[str]) -> list[str]:
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def find_rule(name: str, origin: str) -> Rule:
    if name not in BY_ID:
        raise ConfigError(f"unknown rule {name!r}", origin=origin, hint=suggest_closest(name, BY_ID) or EVERY_RULE)
    return BY_ID[name]


def check_names(names: Iterable[str], origin: str) -> None:
    for name in names:
        if not SHELLCHECK_RULE.fullmatch(name):
            find_rule(name, origin)


def chosen_rules(select: Sequence[str], ignore: Sequence[str]) -> tuple[Rule, ...]:
    """All rules without --select. Raises ConfigError."""
    check_names(select, "--select")
    check_names(ignore, "--ignore")
    return tuple(rule for rule in RULES if (not select or rule.id in select) and rule.id not in ignore)


def is_chosen(finding: Finding, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """For the findings of shellcheck, which have no rule here."""
    return finding.rule not in ignore and (not select or finding.rule in select)


def wants_shellcheck(select: Sequence[str]) -> bool:
    return not select or any(SHELLCHECK_RULE.fullmatch(name) for name in select)


# All files of a command line


class _Collector:
    """Collects what the scripts of all files have."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.files = 0
        self.findings: dict[str, list[Finding]] = {}
        self.ignored: dict[str, Ignored] = {}
        self.replacements: list[Replacement] = []
        self.skipped: list[Skipped] = []
        self.whole: list[Source] = []
        """The scripts for shellcheck."""

    def read(self, name: str, *, from_folder: bool) -> None:
        sources = read_sources(name, from_folder=from_folder)
        if isinstance(sources, Skipped):
            self.skipped.append(sources)
            return
        self.files += bool(sources) or not from_folder
        for source in sources:
            self._check(source, sources)

    def _check(self, source: Source, others: Sequence[Source]) -> None:
        script = parse_script(source, lambda name: find_companion(source, name, others))
        if isinstance(script, Skipped):
            self.skipped.append(script)
            return
        note = broken_note(script)
        if note is not None:
            self.skipped.append(note)
        elif script.is_whole and script.is_shell and (script.is_batch or script.shebang is not None):
            self.whole.append(source)
        self.add(check_script(script, self.rules), source)
        replacement = find_replacement(script, lambda name: find_companion(source, name, others))
        if replacement is not None:
            self.replacements.append(replacement)

    def add(self, findings: Iterable[Finding], source: Source) -> None:
        self.findings.setdefault(source.path, []).extend(findings)
        if source.path not in self.ignored:
            self.ignored[source.path] = read_ignored(source.document)
            self.skipped += unknown_names(source.path, self.ignored[source.path])

    def report(self) -> Report:
        kept = [one for path, found in self.findings.items() for one in without_ignored(found, self.ignored[path])]
        return Report(
            findings=tuple(kept),
            replacements=tuple(self.replacements),
            skipped=tuple(self.skipped),
            files=self.files,
        )


def lint_files(
    names: Sequence[str], rules: Sequence[Rule], *, shellcheck: str | None = None, most: int | None = None
) -> Report:
    """`shellcheck` is the path of the program; None leaves it out, and so do more than `most` scripts.

    Raises EnvironmentProblem without a parser.
    """
    collector = _Collector(rules)
    for name, from_folder in find_files(names):
        collector.read(name, from_folder=from_folder)
    if shellcheck is not None and (most is None or len(collector.whole) <= most):
        for source, finding in run_shellcheck(collector.whole, shellcheck):
            collector.add([finding], source)
    return collector.report()
