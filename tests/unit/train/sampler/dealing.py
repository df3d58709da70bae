"""The samplers of a whole world, and what they deal."""

from collections import Counter

import echelon


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
