"""Boxes of a tensor's elements: which part of one lies in another. For tensors that no rank has whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """Where a box begins in the whole tensor, and how long it is, in each dimension."""

    starts: tuple[int, ...]
    shape: tuple[int, ...]

    def within(self, other: Region) -> tuple[slice, ...]:
        """This box as an index into the other one, which contains it."""
        pairs = zip(self.starts, self.shape, other.starts, strict=True)
        return tuple(slice(start - base, start - base + length) for start, length, base in pairs)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape


def whole(shape: Sequence[int]) -> Region:
    return Region((0,) * len(shape), tuple(shape))


def common(one: Region, other: Region) -> Region | None:
    """What lies in both; None where nothing does."""
    starts = tuple(max(a, b) for a, b in zip(one.starts, other.starts, strict=True))
    ends = tuple(min(a, b) for a, b in zip(_ends(one), _ends(other), strict=True))
    found = Region(starts, tuple(max(0, end - start) for start, end in zip(starts, ends, strict=True)))
    return None if found.is_empty else found


def _ends(region: Region) -> tuple[int, ...]:
    return tuple(start + length for start, length in zip(region.starts, region.shape, strict=True))
