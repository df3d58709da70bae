"""Short constructors of findings for the checks."""

from __future__ import annotations

from echelon.doctor.model import Finding, Severity


def error(check: str, node: str, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(severity=Severity.ERROR, check=check, node=node, what=what, why=why, fix=fix, excludes=(node,))


def warning(check: str, node: str, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(severity=Severity.WARNING, check=check, node=node, what=what, why=why, fix=fix)
