"""Formats numbers, sizes and lists of ranks for messages, suggests a known word for a misspelled one, hides secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SIZE_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SIZE_NAMES = ("B", "KiB", "MiB", "GiB", "TiB")
NAME = r"(?:token|secret|passw(?:or)?d|passphrase|credential|api[-_]?key|access[-_]?key|private[-_]?key)"
VARIABLE = re.compile(rf"\b([A-Z0-9_]*{NAME.upper()}[A-Z0-9_]*=)(?!\*\*\*)\S+")
"""HF_TOKEN=abc. Small letters are left alone: `max_tokens=2048` is an ordinary argument of a function."""
OPTION = re.compile(rf"(?i)(--?[a-z0-9_-]*{NAME}[a-z0-9_-]*[= ])(?!-|\*\*\*)\S+")
"""--api-key abc."""
URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?=@)")
"""https://user:abc@host."""
BEARER = re.compile(r"(?i)(\bbearer )[\w.~+/-]{8,}=*")
KNOWN = re.compile(
    r"\b(hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA)[A-Za-z0-9_-]{12,}|(eyJ[\w-]{8,}\.)[\w-]+\.[\w-]+"
)
"""Secrets that services give out with a fixed beginning."""
MOST_SPANS = 8
MOST_GROUP_LINES = 16


def plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def format_size(size: int) -> str:
    amount, index = float(size), 0
    while amount >= 1024 and index < len(SIZE_NAMES) - 1:
        amount, index = amount / 1024, index + 1
    return f"{amount:.1f}".removesuffix(".0") + f" {SIZE_NAMES[index]}"


def format_steps(step: int | None, saved: int | None) -> str:
    """The last trained step and the newest saved one; empty if both are unknown."""
    if saved is None:
        return "" if step is None else str(step)
    return f"{saved} (saved)" if step is None or step == saved else f"{step} (saved {saved})"


def parse_size(text: str) -> int:
    """Parses `50M`; a number without a unit is in megabytes."""
    unit = text[-1] if text[-1].isalpha() else ""
    return int(text.removesuffix(unit)) * SIZE_UNITS[unit]


def suggest_closest(word: str, known: Iterable[str]) -> str | None:
    import difflib  # only when something is already wrong

    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {matches[0]}?" if matches else None


# Secrets in text that other programs wrote


def mask_secrets(text: str) -> str:
    for pattern in (VARIABLE, OPTION, URL, BEARER):
        text = pattern.sub(r"\1***", text)
    return KNOWN.sub(lambda found: f"{found[1] or found[2]}***", text)


def mask_values(value: Any) -> Any:
    """A copy of a JSON value with masked strings."""
    if isinstance(value, dict):
        return {key: mask_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask_values(item) for item in value]
    return mask_secrets(value) if isinstance(value, str) else value


# Lists of ranks


def format_ranks(ranks: Iterable[int]) -> str:
    """`rank 5`, or `ranks 0-3, 6, 7`. A long list ends with an ellipsis."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no ranks"
    parts = [_format_span(span) for span in _spans(numbers)]
    listed = ", ".join(parts[:MOST_SPANS]) + (", ..." if len(parts) > MOST_SPANS else "")
    return f"rank {listed}" if len(numbers) == 1 else f"ranks {listed}"


def _spans(numbers: Sequence[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return spans


def _format_span(span: Sequence[int]) -> str:
    return f"{span[0]}-{span[-1]}" if len(span) > 2 else ", ".join(map(str, span))


def format_ranks_with_host(hosts: Mapping[int, str]) -> str:
    """`ranks 4, 5 on n1`. Several hosts are not listed."""
    names = set(hosts.values())
    place = f" on {names.pop()}" if len(names) == 1 and "" not in names else ""
    return format_ranks(hosts) + place


def format_waiting(ranks: Sequence[int]) -> str:
    """`rank 3 waits`, or `7 ranks wait`."""
    return f"{format_ranks(ranks)} waits" if len(ranks) == 1 else f"{plural(len(ranks), 'rank')} wait"


def group_ranks(texts: Mapping[int, str]) -> tuple[str, ...]:
    """One line for each text with the ranks that share it: `ranks 0-3, 6, 7: waiting in all_reduce at train.py:61`."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(texts):
        groups.setdefault(texts[rank], []).append(rank)
    lines = [f"{format_ranks(ranks)}: {text}" for text, ranks in groups.items()]
    left = len(lines) - MOST_GROUP_LINES
    return (*lines[:MOST_GROUP_LINES], *((f"... and {left} more groups of ranks",) if left > 0 else ()))
