"""Equal shares for any length and any world size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.train.rank import shard_note, shard_positions

lengths, sizes = st.integers(0, 300), st.integers(1, 40)


@pytest.mark.parametrize(
    ("length", "size", "drop", "shares"),
    [
        (6, 2, False, [[0, 2, 4], [1, 3, 5]]),
        (7, 3, False, [[0, 3, 6], [1, 4, 0], [2, 5, 1]]),
        (7, 3, True, [[0, 3], [1, 4], [2, 5]]),
        (2, 5, False, [[0], [1], [0], [1], [0]]),
        (2, 5, True, [[], [], [], [], []]),
        (0, 2, False, [[], []]),
        (5, 1, True, [[0, 1, 2, 3, 4]]),
    ],
)
def test_shares_by_example(length, size, drop, shares):
    assert [shard_positions(length, rank, size, drop=drop) for rank in range(size)] == shares


@given(lengths, sizes)
def test_padded_shares_are_equal_and_nothing_is_lost(length, size):
    shares = [shard_positions(length, rank, size, drop=False) for rank in range(size)]
    assert len({len(share) for share in shares}) == 1
    assert {position for share in shares for position in share} == set(range(length))
    assert len(shares[0]) * size - length < size, "one more round than needed"


@given(lengths, sizes)
def test_dropped_shares_are_equal_and_nothing_comes_twice(length, size):
    shares = [shard_positions(length, rank, size, drop=True) for rank in range(size)]
    taken = [position for share in shares for position in share]
    assert len({len(share) for share in shares}) == 1
    assert sorted(taken) == list(range(length // size * size))


@given(lengths, sizes, st.booleans())
def test_note_is_printed_only_for_unequal_shares(length, size, drop):
    assert (shard_note(length, size, drop=drop) is None) == (length % size == 0)


def test_note_contains_the_numbers():
    assert shard_note(7, 3, drop=False) == (
        "7 items on 3 ranks: 3 each, 2 repeated; shard(drop=True) leaves some out instead"
    )
    assert shard_note(7, 3, drop=True) == "7 items on 3 ranks: 2 each, 1 left out"
