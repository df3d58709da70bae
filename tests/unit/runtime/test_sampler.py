"""Every sample once an epoch: over stops, over changes of the world, and however far a loader has read ahead."""

import pickle
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import echelon
from echelon.errors import ConfigError
from echelon.runtime import sampler as module

LENGTHS = (0, 1, 2, 3, 7, 8, 64, 97, 1_000, 1_024)
WORLDS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def world(length, size, state=None, **options):
    """The samplers of all ranks."""
    samplers = [echelon.ElasticSampler(length, rank=rank, world_size=size, **options) for rank in range(size)]
    for sampler in samplers:
        if state is not None:
            sampler.load_state_dict(state)
    return samplers


def dealt(samplers):
    """What the ranks take, in the order of the epoch."""
    return [index for hand in zip(*samplers, strict=True) for index in hand]


def once(taken, length, size, *, drop_last):
    """Whether each sample came once, but for less than one round at the end."""
    counts = Counter(taken)
    missing, repeated = length - len(counts), len(taken) - len(counts)
    assert set(counts) <= set(range(length))
    return repeated == 0 and missing < size if drop_last else missing == 0 and repeated < size


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
def test_the_same_shuffled(length, stops, last, drop_last, seed):
    taken, size = run(length, stops, last, shuffle=True, drop_last=drop_last, seed=seed)
    assert once(taken, length, size, drop_last=drop_last)


@settings(max_examples=200)
@given(st.integers(1, 200), stops, st.integers())
def test_stops_do_not_change_the_order(length, stops, seed):
    taken, _ = run(length, stops, 1, shuffle=True, drop_last=False, seed=seed)
    assert taken[:length] == list(echelon.ElasticSampler(length, seed=seed))


def test_the_order_is_dealt_to_the_ranks_in_turn():
    order = list(echelon.ElasticSampler(20))
    last = echelon.ElasticSampler(20, rank=3, world_size=4)
    assert list(last) == order[3::4]
    last.advance(5)
    assert list(last) == [*order[8::4], order[0]]  # position 20 is past the end, and stands for position 0


def test_a_world_larger_than_the_dataset_repeats_it():
    assert sorted(Counter(dealt(world(3, 8))).values()) == [2, 3, 3]
    assert dealt(world(3, 8, drop_last=True)) == []


@pytest.mark.parametrize("length", [module.BLOCK - 1, module.BLOCK, module.BLOCK + 1, 3 * module.BLOCK + 5])
def test_blocks_meet_without_a_seam(length):
    assert sorted(echelon.ElasticSampler(length)) == list(range(length))


def test_the_order_without_shuffle_is_that_of_the_dataset():
    assert list(echelon.ElasticSampler(5, shuffle=False)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [2**40, 2**62])
def test_a_dataset_of_any_size_costs_nothing(length):
    sampler = echelon.ElasticSampler(length, rank=7, world_size=8)
    assert len(sampler) == length // 8
    indices = list(islice(sampler, 100))
    assert len(set(indices)) == 100
    assert all(type(index) is int and 0 <= index < length for index in indices)
    sampler.advance(length - 1)
    assert len(list(sampler)) == 1


def test_reading_ahead_counts_for_nothing():
    sampler = echelon.ElasticSampler(100)
    before = list(sampler)
    assert (list(sampler), sampler.consumed) == (before, 0)
    sampler.advance(30)
    assert (list(sampler), len(sampler)) == (before[30:], 70)


def test_an_iteration_goes_on_over_an_advance():
    sampler = echelon.ElasticSampler(100)
    whole, going = list(sampler), iter(sampler)
    ahead = list(islice(going, 10))
    sampler.advance(10)
    assert ahead + list(going) == whole


def test_a_new_epoch_begins_at_its_front_in_another_order():
    sampler = echelon.ElasticSampler(100)
    first = list(sampler)
    sampler.advance(30)
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.consumed, len(sampler)) == (1, 0, 100)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_the_present_epoch_goes_on_when_it_is_set_again():
    sampler = echelon.ElasticSampler(100)
    sampler.advance(30)
    sampler.set_epoch(0)
    assert sampler.consumed == 30


def test_what_fills_up_the_last_round_is_not_counted():
    sampler = echelon.ElasticSampler(10, rank=0, world_size=4)
    sampler.advance(12)
    assert (sampler.consumed, len(sampler), list(sampler)) == (10, 0, [])


def test_the_state_is_a_few_integers():
    sampler = echelon.ElasticSampler(10, seed=3)
    sampler.set_epoch(2)
    sampler.advance(4)
    assert sampler.state_dict() == {"version": 1, "length": 10, "seed": 3, "shuffle": True, "epoch": 2, "consumed": 4}


def test_an_epoch_keeps_the_order_it_began_with():
    began = echelon.ElasticSampler(50, seed=3)
    began.advance(20)
    resumed = echelon.ElasticSampler(50, seed=4, shuffle=False)
    resumed.load_state_dict(began.state_dict())
    assert list(resumed) == list(began)


def test_it_can_be_pickled():
    sampler = echelon.ElasticSampler(50)
    sampler.advance(20)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)  # noqa: S301  our own


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11])
def test_batches_are_the_same_samples_in_lists(length):
    sampler = echelon.ElasticSampler(length)
    batches = sampler.batches(5)
    listed = list(batches)
    assert [index for batch in listed for index in batch] == list(sampler)
    assert len(listed) == len(batches)
    assert all(len(batch) == 5 for batch in listed[:-1])


def test_rank_and_world_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    sampler = echelon.ElasticSampler(20)
    assert (sampler.rank, sampler.world_size) == (2, 4)
    assert list(sampler) == list(echelon.ElasticSampler(20, rank=2, world_size=4))
    assert echelon.ElasticSampler(20, rank=1).rank == 1


def test_without_an_environment_it_is_alone():
    sampler = echelon.ElasticSampler(["a", "b", "c"])
    assert (sampler.rank, sampler.world_size, len(sampler)) == (0, 1, 3)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(int, 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: echelon.ElasticSampler(-1), "length of the dataset is -1"),
        (lambda: echelon.ElasticSampler(2**62 + 1), "length of the dataset is 4611686018427387905"),
        (lambda: echelon.ElasticSampler(1e6), "length of the dataset is 1000000.0"),
        (lambda: echelon.ElasticSampler(Endless()), "length of the dataset"),
        (lambda: echelon.ElasticSampler(10, rank=4, world_size=4), "rank is 4 in a world of 4"),
        (lambda: echelon.ElasticSampler(10, rank=1), "rank is 1 in a world of 1"),
        (lambda: echelon.ElasticSampler(10, rank=-1, world_size=4), "rank is -1"),
        (lambda: echelon.ElasticSampler(10, rank=0, world_size=0), "world_size is 0"),
        (lambda: echelon.ElasticSampler(10, seed="7"), "seed is '7'"),
        (lambda: echelon.ElasticSampler(10).advance(-1), "count is -1"),
        (lambda: echelon.ElasticSampler(10).advance(2.0), "count is 2.0"),
        (lambda: echelon.ElasticSampler(10).set_epoch(-1), "epoch is -1"),
        (lambda: echelon.ElasticSampler(10).batches(0), "batch_size is 0"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert caught.value.origin
    assert caught.value.hint


@pytest.mark.parametrize(("variable", "text"), [("RANK", "two"), ("RANK", "4"), ("WORLD_SIZE", "0")])
def test_a_bad_environment_is_refused(monkeypatch, variable, text):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError):
        echelon.ElasticSampler(10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"length": 11}, "11 samples, and the dataset has 10"),
        ({"version": 2}, "version 2"),
        ({"consumed": 11}, "11 samples consumed"),
        ({"consumed": -1}, "-1 samples consumed"),
        ({"epoch": -1}, "epoch -1"),
        ({"consumed": 1.5}, "State.consumed is 1.5"),
        ({"consumde": 1}, "consumde"),
    ],
)
def test_a_state_that_cannot_be_continued_is_refused(change, words):
    sampler = echelon.ElasticSampler(10)
    sampler.advance(3)
    before = sampler.state_dict()
    with pytest.raises(ConfigError) as caught:
        sampler.load_state_dict({**before, **change})
    assert words in str(caught.value)
    assert sampler.state_dict() == before


@pytest.mark.parametrize("field", ["version", "length", "seed", "shuffle", "epoch", "consumed"])
def test_a_state_that_lacks_a_field_is_refused(field):
    sampler = echelon.ElasticSampler(10)
    state = {name: value for name, value in sampler.state_dict().items() if name != field}
    with pytest.raises(ConfigError, match="not the state of an ElasticSampler"):
        sampler.load_state_dict(state)


def test_torch_is_loaded_by_the_first_index_and_not_before():
    code = (
        "import sys, echelon\n"
        "sampler = echelon.ElasticSampler(10); sampler.advance(3); sampler.load_state_dict(sampler.state_dict())\n"
        "assert len(sampler) == 7 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batched", [False, True])
def test_a_loader_resumes_in_another_world(workers, batched):
    """Three ranks take four batches of four each, and are stopped while their loaders have read ahead; two go on."""
    data = torch.arange(103)
    taken, state = [], None
    for size, steps in ((3, 4), (2, None)):
        samplers = world(len(data), size, state, seed=5)
        loaders = [loader(data, sampler, workers, batched=batched) for sampler in samplers]
        for batches in islice(zip(*loaders, strict=True), steps):
            taken += [index for batch in batches for index in batch.tolist()]
            for sampler, batch in zip(samplers, batches, strict=True):
                sampler.advance(len(batch) * size)
        state = samplers[0].state_dict()
    assert state["consumed"] == 103
    assert once(taken, 103, 2, drop_last=False)
    assert len(taken) == 104


def loader(data, sampler, workers, *, batched):
    if batched:
        return DataLoader(data, batch_sampler=sampler.batches(4), num_workers=workers)
    return DataLoader(data, sampler=sampler, batch_size=4, num_workers=workers)


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
def test_one_loader_serves_all_epochs(workers):
    data = torch.arange(20)
    sampler = echelon.ElasticSampler(data)
    batches = DataLoader(data, sampler=sampler, batch_size=6, num_workers=workers, persistent_workers=workers > 0)
    orders = []
    for epoch in range(sampler.epoch, 3):
        sampler.set_epoch(epoch)
        assert len(batches) == 4
        order = []
        for batch in batches:
            order += batch.tolist()
            sampler.advance(len(batch))
        orders.append(order)
    assert [sorted(order) for order in orders] == [list(range(20))] * 3
    assert len({tuple(order) for order in orders}) == 3
