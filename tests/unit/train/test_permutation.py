"""The order of an epoch: a bijection at any length, the same everywhere, and well shuffled. Seeds are fixed, so is the verdict."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.train.permutation import MAX_LENGTH, MAX_LENGTH_32_BITS, SHORT_LENGTH, epoch_permutation

PRIMES = (2, 3, 5, 7, 11, 13, 31, 127, 257, 997, 1009, 4099, 65521, 65537)
EDGES = (
    1,
    4,
    6,
    9,
    10,
    SHORT_LENGTH,
    SHORT_LENGTH + 1,
    100_000,
    *(2**bits + off for bits in range(2, 17) for off in (-1, 0, 1)),
)
lengths = st.one_of(st.integers(1, 64), st.integers(1, 20_000))
seeds = st.integers(-(2**70), 2**70)


def order(length, *, seed=0, epoch=0):
    return epoch_permutation(length, seed=seed, epoch=epoch).indices_at(torch.arange(length)).long()


def front(length, count, *, seed=0, epoch=0):
    return epoch_permutation(length, seed=seed, epoch=epoch).indices_at(torch.arange(count)).tolist()


def is_bijection(indices):
    return torch.equal(indices.sort().values, torch.arange(len(indices)))


def excess(counts):
    """Chi-square against equal shares, in standard deviations."""
    expected = counts.double().mean()
    freedom = counts.numel() - 1
    return (((counts - expected) ** 2 / expected).sum().item() - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("length", sorted({*PRIMES, *EDGES}))
def test_every_index_comes_once_at_lengths_on_the_edge(length):
    assert is_bijection(order(length))


@settings(max_examples=500)
@given(lengths, seeds, st.integers(0, 10**9))
def test_every_index_comes_once(length, seed, epoch):
    assert is_bijection(order(length, seed=seed, epoch=epoch))


@pytest.mark.parametrize("length", [MAX_LENGTH_32_BITS, MAX_LENGTH_32_BITS + 1, 2**40, 2**40 + 15, MAX_LENGTH])
def test_long_orders_stay_inside_and_do_not_repeat(length):
    ends = torch.cat([torch.arange(100_000), torch.arange(length - 100_000, length)])
    indices = epoch_permutation(length, seed=0, epoch=0).indices_at(ends)
    assert indices.min() >= 0
    assert indices.max() < length
    assert len(indices.unique()) == len(ends)


@pytest.mark.parametrize("length", [7, 5_000, 2**40])
def test_one_at_a_time_or_many_is_the_same(length):
    shuffled = epoch_permutation(length, seed=1, epoch=2)
    alone = [shuffled.indices_at(torch.tensor([position])).item() for position in range(7)]
    assert alone == shuffled.indices_at(torch.arange(min(length, 5_000)))[:7].tolist()


def test_the_order_is_the_one_of_version_1():
    """A change here breaks every saved state: it needs a new VERSION in sampler.py."""
    assert front(10, 10) == [8, 3, 7, 2, 9, 1, 0, 4, 6, 5]
    assert front(10**6, 5, seed=7, epoch=3) == [941189, 670480, 769973, 347691, 703000]
    assert front(2**40, 5, seed=7, epoch=3) == [779169572873, 755660963120, 571991056355, 454594577146, 977150502223]


@pytest.mark.parametrize("length", [50, 10**6, 2**40])
def test_seed_epoch_and_length_each_make_another_order(length):
    fronts = [
        front(length, 50),
        front(length, 50, seed=1),
        front(length, 50, seed=-1),
        front(length, 50, epoch=1),
        front(length, 50, seed=2**64),
        front(length + 1, 50),
    ]
    assert len({tuple(indices) for indices in fronts}) == len(fronts)
    assert list(range(50)) not in fronts


@pytest.mark.parametrize("length", [3, 4])
def test_every_order_of_a_few_samples_is_about_as_likely(length):
    found = torch.stack([order(length, seed=seed) for seed in range(1500)])
    numbers = (found * length ** torch.arange(length)).sum(1)
    counts = numbers.unique(return_counts=True)[1]
    assert len(counts) == math.factorial(length)
    assert excess(counts) < 4


@pytest.mark.parametrize("length", [5, 8, 17])
def test_any_sample_may_be_at_any_position(length):
    found = torch.stack([order(length, seed=seed) for seed in range(1500)])
    for place in range(length):
        assert excess(torch.bincount(found[:, place], minlength=length)) < 5
    pairs = torch.bincount(found[:, 0] * length + found[:, 1], minlength=length**2).view(length, length)
    assert excess(pairs[~torch.eye(length, dtype=torch.bool)]) < 5


@pytest.mark.parametrize("length", [1_001, 65_536, 100_003, 1_000_000])
@pytest.mark.parametrize("seed", [0, 1])
def test_position_does_not_predict_the_index(length, seed):
    bucket = order(length, seed=seed) * 16 // length
    place = torch.arange(length) * 16 // length
    assert excess(torch.bincount(place * 16 + bucket, minlength=256)) < 5


@pytest.mark.parametrize("length", [1_001, 65_536, 100_003, 1_000_000])
@pytest.mark.parametrize("lag", [1, 2, 8, 64, 256])
def test_index_does_not_predict_the_next_one(length, lag):
    indices = order(length)
    bucket, low = indices * 16 // length, indices % 16
    apart = (indices[lag:] - indices[:-lag]) % length * 64 // length
    assert excess(torch.bincount(bucket[:-lag] * 16 + bucket[lag:], minlength=256)) < 5
    assert excess(torch.bincount(low[:-lag] * 16 + low[lag:], minlength=256)) < 5
    assert excess(torch.bincount(apart, minlength=64)) < 5


@pytest.mark.parametrize("length", [1_001, 65_536, 1_000_000])
@pytest.mark.parametrize("lag", [1, 8, 256])
def test_serial_correlation_is_that_of_chance(length, lag):
    values = order(length).double() / length - 0.5
    correlation = 12 * (values[lag:] * values[:-lag]).mean().item()
    assert abs(correlation) < 4 / math.sqrt(length)


def test_epochs_have_different_orders():
    first, second = order(100_000, epoch=0).double(), order(100_000, epoch=1).double()
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 4 / math.sqrt(100_000)
