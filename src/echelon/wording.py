"""Numbers as people read them."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def sized(size: int) -> str:
    amount, index = float(size), 0
    while amount >= 1024 and index < len(UNITS) - 1:
        amount, index = amount / 1024, index + 1
    return f"{amount:.1f}".removesuffix(".0") + f" {UNITS[index]}"
