"""Findings as text: one block each, at most 80 columns wide. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from echelon.lint.model import Finding, Replacement, Report, Rule, Severity
from echelon.text import plural
from echelon.untrusted import clean_for_terminal

WIDTH = 80
SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
Style = Callable[[str, str], str]
"""Colours a text, for one of the uses `path`, `error`, `warning` and `rule`."""


def plain(text: str, use: str) -> str:  # noqa: ARG001  the signature of a style
    return text


def format_report(report: Report, style: Style = plain) -> str:
    """The findings in the order of files and lines, each file's replacements after its findings."""
    blocks: dict[str, list[str]] = {}
    for finding in report.findings:
        blocks.setdefault(finding.path, []).append(format_finding(finding, style))
    for replacement in report.replacements:
        blocks.setdefault(replacement.path, []).append(format_replacement(replacement, style))
    return "\n\n".join(block for of_file in blocks.values() for block in of_file)


def format_finding(finding: Finding, style: Style = plain) -> str:
    place = f"{clean_for_terminal(finding.path)}:{finding.line}"
    kind = f"{finding.severity.value}[{finding.rule}]"
    first, *rest = textwrap.wrap(
        f"{place}: {kind} {_one_line(finding.sentence)}",
        WIDTH,
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    head = first.replace(f"{place}:", f"{style(place, 'path')}:", 1)
    head = head.replace(kind, style(kind, finding.severity.value), 1)
    fix = _format_code("fix", finding.fix) if finding.fix else []
    return "\n".join((head, *rest, *_format_text("practice", finding.practice), *fix))


def _one_line(text: str) -> str:
    return " ".join(clean_for_terminal(text).split())


@lru_cache
def _format_text(label: str, text: str) -> tuple[str, ...]:
    """Findings of one rule have the same text, and a large folder has thousands of them."""
    indent = " " * 12
    lines = textwrap.wrap(
        _one_line(text),
        WIDTH,
        initial_indent=f"  {label:<10}",
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return tuple(lines)


def _format_code(label: str, text: str) -> list[str]:
    lines = [piece for line in clean_for_terminal(text).split("\n") for piece in _code_line(line.strip())]
    return [f"  {label if index == 0 else '':<10}{line}" for index, line in enumerate(lines)]


def _code_line(line: str) -> list[str]:
    if line.startswith("# "):
        return textwrap.wrap(line, WIDTH - 12, subsequent_indent="# ", break_on_hyphens=False)
    return [line] if line.startswith("#") else fold(SHELL_WORD.findall(line), WIDTH - 12)


def fold(words: Sequence[str], width: int) -> list[str]:
    """A command, continued by backslashes between words where it is too long."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        if len(longer) + 2 <= width or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines[-1] += " \\"
            lines.append(f"  {word}")
    return lines


def format_replacement(replacement: Replacement, style: Style = plain) -> str:
    place = style(f"{clean_for_terminal(replacement.path)}:{replacement.line}", "path")
    missing = [clean_for_terminal(one) for one in replacement.missing]
    if replacement.command is None:
        return "\n".join((f"{place}: no echelon run command can be derived", *_format_list(missing)))
    command = fold([clean_for_terminal(word) for word in _flags_with_values(replacement.command)], WIDTH - 4)
    lines = [f"{place}: the same job with echelon", *(f"    {line}" for line in command)]
    return "\n".join((*lines, *(("  not carried over", *_format_list(missing)) if missing else ())))


def _flags_with_values(words: Sequence[str]) -> Iterator[str]:
    """The words, each flag together with its value."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        takes_value = re.fullmatch(r"--[a-z-]+|-[NgpAm]", word) and rest and not rest[0].startswith("-")
        yield f"{word} {rest.pop(0)}" if takes_value else word


def _format_list(texts: Sequence[str]) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            _one_line(text),
            WIDTH,
            initial_indent="    ",
            subsequent_indent="      ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    ]


def format_summary(report: Report) -> str:
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    where = plural(report.files, "file")
    if not errors and not warnings:
        return f"no findings in {where}"
    counts = [plural(number, what) for number, what in ((errors, "error"), (warnings, "warning")) if number]
    return f"{', '.join(counts)} in {where}"


def format_rule(rule: Rule) -> str:
    """What `--explain` prints."""
    parts = (
        f"{rule.id} ({rule.severity.value})",
        textwrap.fill(rule.reason, WIDTH, break_on_hyphens=False),
        textwrap.fill(f"In practice: {rule.practice}", WIDTH, break_on_hyphens=False),
        f"With the trap:\n\n{_example(rule.bad)}",
        f"Without it:\n\n{_example(rule.good)}",
        f"To ignore it on one line: # echelon: ignore[{rule.id}]",
    )
    return "\n\n".join(parts)


def _example(text: str) -> str:
    lines = [piece for line in text.rstrip().split("\n") for piece in fold_source(line, WIDTH - 4)]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def fold_source(line: str, width: int) -> list[str]:
    """A line of a script with its indentation. Directives are never folded."""
    indent = line[: len(line) - len(line.lstrip())]
    if line.startswith("#") or len(line) <= width:
        return [line]
    return [indent + piece for piece in fold(SHELL_WORD.findall(line), width - len(indent))]
