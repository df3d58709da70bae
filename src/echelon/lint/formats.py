"""A report as JSON, and as SARIF 2.1.0 for code hosts and editors; the rules as a page of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from echelon.lint.model import Finding, Report, Rule, Severity
from echelon.lint.rules import FAMILIES, RULES
from echelon.lint.text_output import fold_source
from echelon.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
JSON_VERSION = 1
WIDTH = 100
INTRODUCTION = """\
# Rules of echelon lint

<!-- made by echelon.lint.formats from the table of rules; a test compares both -->

{errors} rules are errors: the job fails, hangs, or does not do what the script suggests. {warnings} are warnings:
the job works until something happens, such as a second job on the node. `echelon lint --explain RULE` prints a section.
"""


def report_as_json(report: Report) -> dict[str, Any]:
    return {
        "version": JSON_VERSION,
        "files": report.files,
        "errors": report.count(Severity.ERROR),
        "warnings": report.count(Severity.WARNING),
        "findings": [_finding(one) for one in report.findings],
        "replacements": [
            {
                "path": one.path,
                "line": one.line,
                "command": " ".join(one.command) if one.command is not None else None,
                "not_carried_over": list(one.missing),
            }
            for one in report.replacements
        ],
        "skipped": [{"path": one.path, "reason": one.reason} for one in report.skipped],
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "path": one.path,
        "line": one.line,
        "rule": one.rule,
        "severity": one.severity.value,
        "sentence": one.sentence,
        "practice": one.practice,
        "fix": one.fix,
    }


def report_as_sarif(report: Report, rules: Sequence[Rule]) -> dict[str, Any]:
    positions = {rule.id: number for number, rule in enumerate(rules)}
    driver = {"name": "echelon lint", "version": __version__, "rules": [_rule(rule) for rule in rules]}
    invocation = {
        "executionSuccessful": True,
        "toolExecutionNotifications": [
            {"level": "warning", "message": {"text": one.reason}, "locations": [_location(one.path)]}
            for one in report.skipped
        ],
    }
    results = [_result(one, positions) for one in report.findings]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "invocations": [invocation], "results": results}],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.reason},
        "fullDescription": {"text": f"{rule.reason} {rule.practice}"},
        "help": {"text": f"With the trap:\n{rule.bad}\nWithout it:\n{rule.good}"},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _result(one: Finding, positions: dict[str, int]) -> dict[str, Any]:
    result = {
        "ruleId": one.rule,
        "level": one.severity.value,
        "message": {"text": f"{one.sentence}. {one.practice}" + (f" Fix: {one.fix}" if one.fix else "")},
        "locations": [_location(one.path, one.line)],
    }
    return {**result, "ruleIndex": positions[one.rule]} if one.rule in positions else result


def _location(path: str, line: int | None = None) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(path)}}
    if line is not None:
        physical["region"] = {"startLine": max(1, line)}
    return {"physicalLocation": physical}


def _uri(path: str) -> str:
    posix = PurePosixPath(path)
    quoted = quote(str(posix))
    return f"file://{quoted}" if posix.is_absolute() else quoted


# The page of the rules in the documentation, made from the table of rules


def rules_page() -> str:
    """The text of docs/lint/rules.md.

    python -c "from echelon.lint.formats import rules_page; print(rules_page(), end='')" >docs/lint/rules.md
    """
    errors = sum(rule.severity is Severity.ERROR for rule in RULES)
    introduction = INTRODUCTION.format(errors=errors, warnings=len(RULES) - errors)
    return "\n".join((introduction, *_table(), *(part for title in FAMILIES for part in _family(title))))


def _table() -> Iterator[str]:
    yield "| rule | severity | reason |"
    yield "|---|---|---|"
    escaped = "\\|"
    for rule in RULES:
        yield f"| [{rule.id}](#{rule.id}) | {rule.severity.value} | {rule.reason.replace('|', escaped)} |"


def _family(title: str) -> Iterator[str]:
    yield f"\n## {title}"
    for rule in FAMILIES[title]:
        yield from _section(rule)


def _section(rule: Rule) -> Iterator[str]:
    yield f"\n### {rule.id}\n"
    yield f"{rule.severity.value.capitalize()}. {rule.reason}\n"
    yield f"In practice: {rule.practice}\n"
    yield "With the trap:\n"
    yield from _code(rule.bad)
    yield "\nWithout it:\n"
    yield from _code(rule.good)


def _code(text: str) -> Iterator[str]:
    yield "```bash"
    for line in text.rstrip().split("\n"):
        yield from fold_source(line, WIDTH)
    yield "```"
