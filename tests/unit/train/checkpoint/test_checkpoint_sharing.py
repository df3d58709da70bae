"""Shares and regions: together they cover everything exactly once."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from echelon.train.checkpoint.layout import (
    SHARE_ALIGNMENT_BYTES,
    Region,
    byte_offsets,
    region_intersection,
    share_bounds,
    share_overlaps,
    whole_region,
)


@given(st.integers(0, 10**12), st.integers(1, 2000))
def test_shares_cover_all_bytes_and_are_about_equal(total, size):
    cuts = [share_bounds(total, rank, size) for rank in range(size)]
    assert cuts[0][0] == 0
    assert cuts[-1][1] == total
    assert all(one[1] == other[0] for one, other in itertools.pairwise(cuts))
    assert all(0 <= end - begin <= total / size + 2 * SHARE_ALIGNMENT_BYTES for begin, end in cuts)


@given(st.lists(st.integers(0, 300), max_size=8), st.integers(1, 7))
def test_every_tensor_byte_is_in_one_share_at_its_offset(sizes, ranks):
    places = byte_offsets(sizes)
    stream = [(tensor, byte) for tensor, size in enumerate(sizes) for byte in range(size)]
    found = []
    for rank in range(ranks):
        begin, end = share_bounds(places[-1], rank, ranks)
        mine = [None] * (end - begin)
        for part in share_overlaps(places, begin, end):
            mine[part.place : part.place + part.last - part.first] = [
                (part.tensor, byte) for byte in range(part.first, part.last)
            ]
        found += mine
    assert found == stream


def boxes(shape):
    def box(bounds):
        starts = tuple(min(pair) for pair in bounds)
        return Region(starts, tuple(abs(a - b) for a, b in bounds))

    return st.tuples(*(st.tuples(st.integers(0, n), st.integers(0, n)) for n in shape)).map(box)


def cells(region):
    return set(itertools.product(*(range(s, s + n) for s, n in zip(region.starts, region.shape, strict=True))))


@given(st.lists(st.integers(0, 5), max_size=3).flatmap(lambda shape: st.tuples(boxes(shape), boxes(shape))))
def test_intersection_of_two_regions(pair):
    one, other = pair
    both = region_intersection(one, other)
    assert (cells(both) if both is not None else set()) == cells(one) & cells(other)


def test_region_as_index_into_a_larger_one():
    assert Region((3, 4), (2, 1)).within(Region((1, 4), (9, 9))) == (slice(2, 4), slice(0, 1))
    assert whole_region((2, 3)) == Region((0, 0), (2, 3))
