"""Formats numbers and sizes for messages, suggests a known word for a misspelled one, and hides secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
