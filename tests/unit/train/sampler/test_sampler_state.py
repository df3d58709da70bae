"""What a sampler has counted: reading ahead is nothing, an advance is, and it is kept and continued."""

import pickle
from itertools import islice

import pytest

import echelon
from echelon.errors import ConfigError


def test_reading_ahead_does_not_advance():
    sampler = echelon.ElasticSampler(100)
    before = list(sampler)
    assert (list(sampler), sampler.consumed) == (before, 0)
    sampler.advance(30)
    assert (list(sampler), len(sampler)) == (before[30:], 70)


def test_iteration_continues_after_an_advance():
    sampler = echelon.ElasticSampler(100)
    whole, going = list(sampler), iter(sampler)
    ahead = list(islice(going, 10))
    sampler.advance(10)
    assert ahead + list(going) == whole


def test_new_epoch_starts_at_its_beginning_in_another_order():
    sampler = echelon.ElasticSampler(100)
    first = list(sampler)
    sampler.advance(30)
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.consumed, len(sampler)) == (1, 0, 100)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_setting_the_current_epoch_keeps_its_position():
    sampler = echelon.ElasticSampler(100)
    sampler.advance(30)
    sampler.set_epoch(0)
    assert sampler.consumed == 30


def test_padding_of_the_last_round_is_not_counted():
    sampler = echelon.ElasticSampler(10, rank=0, world_size=4)
    sampler.advance(12)
    assert (sampler.consumed, len(sampler), list(sampler)) == (10, 0, [])


def test_state_has_length_seed_epoch_and_position():
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


def test_sampler_can_be_pickled():
    sampler = echelon.ElasticSampler(50)
    sampler.advance(20)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)  # noqa: S301  our own


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"length": 11}, "11 samples, but the dataset has 10"),
        ({"version": 2}, "version 2"),
        ({"consumed": 11}, "11 consumed samples"),
        ({"consumed": -1}, "-1 consumed samples"),
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
def test_state_without_a_field_is_refused(field):
    sampler = echelon.ElasticSampler(10)
    state = {name: value for name, value in sampler.state_dict().items() if name != field}
    with pytest.raises(ConfigError, match="not the state of an ElasticSampler"):
        sampler.load_state_dict(state)
