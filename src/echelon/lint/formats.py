"""A report as JSON, and as SARIF 2.1.0 for code hosts and editors. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from echelon.lint.model import Finding, Report, Rule, Severity
from echelon.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
JSON_VERSION = 1


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
