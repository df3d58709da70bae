"""Every sample once an epoch: over stops, over changes of the world, and in a dataset of any size."""

import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest
from dealing import dealt, once, world
from hypothesis import given, settings
from hypothesis import strategies as st

import echelon
from echelon.train import sampler as module

LENGTHS = (0, 1, 2, 3, 7, 8, 64, 97, 1_000, 1_024)
WORLDS = (1, 2, 3, 8)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_an_epoch_has_every_sample_once(length, size, shuffle, drop_last):
    samplers = world(length, size, shuffle=shuffle, drop_last=drop_last)
    assert once(dealt(samplers), length, size, drop_last=drop_last)
    assert {len(sampler) for sampler in samplers} == {len(list(sampler)) for sampler in samplers}


def run(length, stops, last, *, shuffle, drop_last, seed=0):
    """An epoch in several worlds, each stopped after some samples, not always between rounds; the last one ends it."""
    taken, state = [], None
    for size, count in stops:
        samplers = world(length, size, state, seed=seed, shuffle=shuffle, drop_last=drop_last)
        took = list(islice(dealt(samplers), count))
        for sampler in samplers:
            sampler.advance(len(took))
        states = [sampler.state_dict() for sampler in samplers]
        assert states == states[:1] * size
        taken, state = taken + took, states[0]
        if state["consumed"] == length:  # the end, with what filled up the last round
            return taken, size
    return taken + dealt(world(length, last, state, seed=seed, shuffle=shuffle, drop_last=drop_last)), last


sizes = st.integers(1, 9)
stops = st.lists(st.tuples(sizes, st.integers(0, 60)), max_size=8)


@settings(max_examples=3000)
@given(st.integers(0, 200), stops, sizes, st.booleans())
def test_any_stops_and_worlds_leave_every_sample_once(length, stops, last, drop_last):
    taken, size = run(length, stops, last, shuffle=False, drop_last=drop_last)
    assert once(taken, length, size, drop_last=drop_last)


@settings(max_examples=300)
@given(st.integers(0, 200), stops, sizes, st.booleans(), st.integers())
def test_every_sample_comes_once_when_shuffled(length, stops, last, drop_last, seed):
    taken, size = run(length, stops, last, shuffle=True, drop_last=drop_last, seed=seed)
    assert once(taken, length, size, drop_last=drop_last)


@settings(max_examples=200)
@given(st.integers(1, 200), stops, st.integers())
def test_stops_do_not_change_the_order(length, stops, seed):
    taken, _ = run(length, stops, 1, shuffle=True, drop_last=False, seed=seed)
    assert taken[:length] == list(echelon.ElasticSampler(length, seed=seed))


def test_ranks_take_samples_in_turn():
    order = list(echelon.ElasticSampler(20))
    last = echelon.ElasticSampler(20, rank=3, world_size=4)
    assert list(last) == order[3::4]
    last.advance(5)
    assert list(last) == [*order[8::4], order[0]]  # position 20 is past the end, and stands for position 0


def test_a_world_larger_than_the_dataset_repeats_it():
    assert sorted(Counter(dealt(world(3, 8))).values()) == [2, 3, 3]
    assert dealt(world(3, 8, drop_last=True)) == []


@pytest.mark.parametrize(
    "length", [module.BLOCK_SIZE - 1, module.BLOCK_SIZE, module.BLOCK_SIZE + 1, 3 * module.BLOCK_SIZE + 5]
)
def test_blocks_join_without_gap_or_overlap(length):
    assert sorted(echelon.ElasticSampler(length)) == list(range(length))


def test_the_order_without_shuffle_is_that_of_the_dataset():
    assert list(echelon.ElasticSampler(5, shuffle=False)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [2**40, 2**62])
def test_huge_dataset_is_supported(length):
    sampler = echelon.ElasticSampler(length, rank=7, world_size=8)
    assert len(sampler) == length // 8
    indices = list(islice(sampler, 100))
    assert len(set(indices)) == 100
    assert all(type(index) is int and 0 <= index < length for index in indices)
    sampler.advance(length - 1)
    assert len(list(sampler)) == 1


def test_torch_is_loaded_by_the_first_index_and_not_before():
    code = (
        "import sys, echelon\n"
        "sampler = echelon.ElasticSampler(10); sampler.advance(3); sampler.load_state_dict(sampler.state_dict())\n"
        "assert len(sampler) == 7 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
