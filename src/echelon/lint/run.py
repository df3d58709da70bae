"""Checks all files of a command line and returns one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon.lint.check import (
    Ignored,
    broken_note,
    check_script,
    parse_script,
    read_ignored,
    unknown_names,
    without_ignored,
)
from echelon.lint.migrate.command import find_replacement
from echelon.lint.model import Finding, Replacement, Report, Rule, Skipped
from echelon.lint.script import Source
from echelon.lint.shellcheck import run_shellcheck
from echelon.lint.sources import find_companion, find_files, read_sources


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
        script = parse_script(source)
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
