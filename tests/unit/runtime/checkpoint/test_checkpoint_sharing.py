"""Shares and regions: together they are the whole, and nothing twice."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from echelon.runtime.checkpoint.regions import Region, common, whole
from echelon.runtime.checkpoint.sharing import ALIGNMENT, offsets, overlaps, share


@given(st.integers(0, 10**12), st.integers(1, 2000))
def test_shares_are_the_whole_and_about_equal(total, size):
    cuts = [share(total, rank, size) for rank in range(size)]
    assert cuts[0][0] == 0
    assert cuts[-1][1] == total
    assert all(one[1] == other[0] for one, other in itertools.pairwise(cuts))
    assert all(0 <= end - begin <= total / size + 2 * ALIGNMENT for begin, end in cuts)


@given(st.lists(st.integers(0, 300), max_size=8), st.integers(1, 7))
def test_every_byte_of_every_tensor_is_in_one_share_at_its_place(sizes, ranks):
    places = offsets(sizes)
    stream = [(tensor, byte) for tensor, size in enumerate(sizes) for byte in range(size)]
    found = []
    for rank in range(ranks):
        begin, end = share(places[-1], rank, ranks)
        mine = [None] * (end - begin)
        for part in overlaps(places, begin, end):
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
def test_what_two_boxes_have_in_common(pair):
    one, other = pair
    both = common(one, other)
    assert (cells(both) if both is not None else set()) == cells(one) & cells(other)


def test_a_box_as_an_index_into_a_larger_one():
    assert Region((3, 4), (2, 1)).within(Region((1, 4), (9, 9))) == (slice(2, 4), slice(0, 1))
    assert whole((2, 3)) == Region((0, 0), (2, 3))
