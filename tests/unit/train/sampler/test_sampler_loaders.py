"""Loaders over a sampler: in batches, with workers that read ahead, and in another world than before."""

from itertools import islice

import pytest
import torch
from dealing import once, world
from torch.utils.data import DataLoader

import echelon


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11])
def test_batches_are_the_same_samples_in_lists(length):
    sampler = echelon.ElasticSampler(length)
    batches = sampler.batches(5)
    listed = list(batches)
    assert [index for batch in listed for index in batch] == list(sampler)
    assert len(listed) == len(batches)
    assert all(len(batch) == 5 for batch in listed[:-1])


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
