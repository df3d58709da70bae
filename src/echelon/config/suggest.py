"""What the user may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    import difflib  # only when something is already wrong

    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {matches[0]}?" if matches else None
