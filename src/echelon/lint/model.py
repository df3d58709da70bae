"""What the linter reports: findings, their rules, and files that could not be read; sets of names for its tables."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from echelon.record import record

if TYPE_CHECKING:
    from echelon.lint.script import JobScript


class Severity(str, enum.Enum):
    ERROR = "error"
    WARNING = "warning"


@record
class Hit:
    """One trap, as a rule reports it."""

    line: int
    sentence: str
    fix: str
    """The corrected line or lines."""
    start: int | None = None
    """First line of the statement, if it differs: a comment that ignores the rule can only be above it."""
    severity: Severity | None = None
    """If it differs from the severity of the rule."""
    practice: str | None = None
    """If it differs from the text of the rule."""


@record
class Rule:
    id: str
    severity: Severity
    reason: str
    """One sentence."""
    practice: str
    """What happens to a job with this trap."""
    bad: str
    """A short script with the trap."""
    good: str
    """The same script without it."""
    check: Callable[[JobScript], Iterator[Hit]]


@record
class Finding:
    path: str
    line: int
    rule: str
    severity: Severity
    sentence: str
    practice: str
    fix: str
    start: int
    """First line of the statement."""


@record
class Skipped:
    path: str
    reason: str


@record
class Replacement:
    """The `echelon run` command for a script, or the reason why there is none."""

    path: str
    line: int
    command: tuple[str, ...] | None
    """Words as they are typed: already quoted, so that `"$HOME"` can be one."""
    missing: tuple[str, ...]
    """What could not be carried over."""


@record
class Report:
    findings: tuple[Finding, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files: int = 0

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def names(text: str) -> frozenset[str]:
    """A set of names, written as one text."""
    return frozenset(text.split())
