"""Who writes what of the bytes that all ranks have alike: laid end to end, and cut into equal shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

ALIGNMENT = 64
"""Shares are cut at multiples of it, so that copies begin where memory likes it."""


class Overlap(NamedTuple):
    """Part of one tensor's bytes, and where it stands in a share."""

    tensor: int
    first: int
    last: int
    place: int


def share(total: int, rank: int, size: int) -> tuple[int, int]:
    """The rank's bytes, first to last; the shares of all ranks are the whole, and differ by little."""
    return _cut(total, rank, size), _cut(total, rank + 1, size)


def _cut(total: int, index: int, size: int) -> int:
    place = total * index // size
    return total if index == size else place - place % ALIGNMENT


def offsets(sizes: Sequence[int]) -> list[int]:
    """Where each tensor begins, when they are laid end to end; and where the last one ends."""
    return [0, *accumulate(sizes)]


def overlaps(places: Sequence[int], begin: int, end: int) -> Iterator[Overlap]:
    """The parts of tensors between two places, in order. `places` is what `offsets` gave."""
    for tensor, (first, last) in enumerate(pairwise(places)):
        low, high = max(first, begin), min(last, end)
        if low < high:
            yield Overlap(tensor, low - first, high - first, low - begin)
