"""Lists of ranks as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from echelon.text import plural

MOST_SPANS = 8
MOST_GROUP_LINES = 16


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
