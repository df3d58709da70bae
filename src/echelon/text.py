"""Formats numbers and sizes for messages, and suggests a known word for a misspelled one."""

from __future__ import annotations

from collections.abc import Iterable

SIZE_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SIZE_NAMES = ("B", "KiB", "MiB", "GiB", "TiB")


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
