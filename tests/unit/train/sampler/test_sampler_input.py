"""What a sampler is given, by arguments or by the environment, and what it refuses."""

import pytest
import torch

import echelon
from echelon.errors import ConfigError


def test_rank_and_world_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    sampler = echelon.ElasticSampler(20)
    assert (sampler.rank, sampler.world_size) == (2, 4)
    assert list(sampler) == list(echelon.ElasticSampler(20, rank=2, world_size=4))
    assert echelon.ElasticSampler(20, rank=1).rank == 1


def test_rank_without_variables_is_single():
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
        (lambda: echelon.ElasticSampler(10, rank=4, world_size=4), "rank is 4, but the world size is 4"),
        (lambda: echelon.ElasticSampler(10, rank=1), "rank is 1, but the world size is 1"),
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
