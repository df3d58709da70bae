"""Chooses rules by --select and --ignore. An unknown name is an error with a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon.errors import ConfigError
from echelon.lint.check import SHELLCHECK_RULE
from echelon.lint.model import Finding, Rule
from echelon.lint.rules import BY_ID, RULES
from echelon.text import suggest_closest

EVERY_RULE = "echelon lint --rules lists them"


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
