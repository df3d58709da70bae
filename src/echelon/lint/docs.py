"""The page of the rules in the documentation, made from the table of rules. Pure.

python -c "from echelon.lint.docs import rules_page; print(rules_page(), end='')" >docs/lint/rules.md
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.lint.model import Rule, Severity
from echelon.lint.rules import FAMILIES, RULES
from echelon.lint.text_output import fold_source

WIDTH = 100
INTRODUCTION = """\
# Rules of echelon lint

<!-- made by echelon.lint.docs from the table of rules; a test compares both -->

{errors} rules are errors: the job fails, hangs, or does not do what the script suggests. {warnings} are warnings:
the job works until something happens, such as a second job on the node. `echelon lint --explain RULE` prints a section.
"""


def rules_page() -> str:
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
