"""Which items are whose: equal counts on all ranks, by arithmetic alone."""

from __future__ import annotations


def count(length: int, size: int, *, drop: bool) -> int:
    """How many items each rank has."""
    return length // size if drop else -(-length // size)


def positions(length: int, rank: int, size: int, *, drop: bool) -> list[int]:
    """Every size-th item from the rank's own on; beyond the end it starts over, unless the rest is dropped."""
    return [(rank + size * turn) % length for turn in range(count(length, size, drop=drop))]


def remark(length: int, size: int, *, drop: bool) -> str | None:
    """What a person should know; None when every item is had exactly once."""
    each = count(length, size, drop=drop)
    uneven = abs(each * size - length)
    if not uneven:
        return None
    if drop:
        return f"{length} items on {size} ranks: {each} each, {uneven} left out"
    return f"{length} items on {size} ranks: {each} each, {uneven} repeated; shard(drop=True) leaves some out instead"
