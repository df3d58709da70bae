"""For the training script: every sample once an epoch, over any number of stops and on any number of ranks."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from echelon.codec import decode, encode
from echelon.errors import ConfigError
from echelon.runtime.permutation import LONGEST, permutation
from echelon.runtime.rank import Rank

VERSION = 1  # of the order as well as of its fields: a state of another one cannot be continued exactly
BLOCK = 32768  # indices made at a time: two milliseconds of work and two megabytes, on one thread


@dataclass(frozen=True, kw_only=True)
class State:
    """How far an epoch has come: the same on every rank, and all that the next world needs to go on."""

    version: int
    length: int
    seed: int
    shuffle: bool
    epoch: int
    consumed: int


class ElasticSampler:
    """Which samples this rank takes, from where the epoch stands.

        sampler = echelon.ElasticSampler(dataset, seed=7)
        loader = DataLoader(dataset, sampler=sampler, batch_size=32, num_workers=4)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for x, y in loader:
                ...
                sampler.advance(len(x) * sampler.world_size)

    The order of an epoch depends on seed, epoch and length alone, and is dealt to the ranks like cards. Reading ahead
    counts for nothing: only `advance` moves on, and iterating without it gives the same samples again. So the state
    may be saved after any step, and loaded into a larger or smaller world.

    The last round is filled up from the front of the order, with fewer samples than there are ranks; `drop_last`
    leaves that round out.
    """

    def __init__(
        self,
        dataset: Sized | int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        """The number of samples will do for `dataset`. The environment says rank and world size, or else 0 and 1."""
        self.rank, self.world_size = _place(rank, world_size)
        self.drop_last = drop_last
        self._state = State(
            version=VERSION,
            length=_length(dataset),
            seed=_whole("seed", seed),
            shuffle=bool(shuffle),
            epoch=0,
            consumed=0,
        )
        self._consumed = 0  # apart from the rest, as is the length: every step needs them
        self._length = self._state.length

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def consumed(self) -> int:
        """Samples of this epoch that all ranks together are done with."""
        return self._consumed

    @property
    def length(self) -> int:
        """Samples of an epoch."""
        return self._length

    def __len__(self) -> int:
        """Samples this rank will still take in this epoch: the same number on every rank."""
        return len(self._positions())

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(_blocks(self._now, self._positions()))

    def batches(self, batch_size: int) -> Batches:
        """For `DataLoader(batch_sampler=...)`: the same samples as lists; the last one may be shorter."""
        return Batches(self, _whole("batch_size", batch_size, least=1))

    def advance(self, count: int) -> None:
        """Count this many samples, over all ranks, as done with. What fills up the last round adds nothing."""
        if type(count) is not int or count < 0:  # every step comes here: what is right is seen at a glance
            count = _whole("count", count, least=0)
        consumed = self._consumed + count
        self._consumed = consumed if consumed < self._length else self._length

    def set_epoch(self, epoch: int) -> None:
        """Begin `epoch`; where it is the present one, go on with it, as a loop that was resumed must."""
        number = _whole("epoch", epoch, least=0)
        if number != self.epoch:
            self._state, self._consumed = replace(self._state, epoch=number), 0

    def state_dict(self) -> dict[str, int]:
        state: dict[str, int] = encode(self._now)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the state was taken, with its seed and shuffle: an epoch keeps the order it began with."""
        self._state = _checked(state_dict, length=self._length)
        self._consumed = self._state.consumed

    @property
    def _now(self) -> State:
        return replace(self._state, consumed=self._consumed)

    def _positions(self) -> range:
        return positions(self._now, rank=self.rank, world_size=self.world_size, drop_last=self.drop_last)


@dataclass(frozen=True)
class Batches:
    sampler: ElasticSampler
    batch_size: int

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        return iter(lambda: list(islice(indices, self.batch_size)), [])

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)


def positions(state: State, *, rank: int, world_size: int, drop_last: bool) -> range:
    """The places in the epoch's order that a rank takes. Those past its end stand for places at its front."""
    remaining = state.length - state.consumed
    rounds = remaining // world_size if drop_last else -(-remaining // world_size)
    first = state.consumed + rank
    return range(first, first + rounds * world_size, world_size)


def _blocks(state: State, places: range) -> Iterator[list[int]]:
    """The samples at these places, BLOCK at a time."""
    import torch  # here, so that a script without it may import echelon

    order = permutation(state.length, seed=state.seed, epoch=state.epoch)
    for start in range(0, len(places), BLOCK):
        part = places[start : start + BLOCK]
        block = torch.arange(part.start, part.stop, part.step, device="cpu")
        if part[-1] >= state.length:
            block %= state.length
        yield (order.indices_at(block) if state.shuffle else block).tolist()


def _checked(state_dict: Mapping[str, Any], *, length: int) -> State:
    """Raises ConfigError for whatever would break the promise of every sample once."""
    try:
        state = decode(State, dict(state_dict))
    except (TypeError, ValueError) as error:
        raise _bad_state("this is not the state of an ElasticSampler", why=str(error)) from error
    if state.version != VERSION:
        raise _bad_state(
            f"the state is of version {state.version}, and this echelon continues version {VERSION}",
            why="another version has another order",
        )
    if state.length != length:
        raise _bad_state(
            f"the state is of {state.length} samples, and the dataset has {length}",
            why="another length has another order, so samples would be missed or seen twice",
        )
    if state.epoch < 0 or not 0 <= state.consumed <= length:
        raise _bad_state(
            f"the state says epoch {state.epoch}, {state.consumed} samples consumed",
            why=f"an epoch here has 0 to {length} of them",
        )
    return state


def _bad_state(what: str, *, why: str) -> ConfigError:
    hint = "load the state that was saved with this dataset, or start the epoch anew without load_state_dict"
    return ConfigError(what, origin="ElasticSampler.load_state_dict", why=why, hint=hint)


def _length(dataset: Sized | int) -> int:
    name = "length of the dataset"
    length = _whole(name, len(dataset) if isinstance(dataset, Sized) else dataset, least=0)
    if length > LONGEST:
        raise _bad_number(name, length, f"{LONGEST} or less")
    return length


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None or world_size is None:
        told = Rank.from_environ(os.environ)
        rank = told.rank if rank is None else rank
        world_size = told.world_size if world_size is None else world_size
    rank, world_size = _whole("rank", rank, least=0), _whole("world_size", world_size, least=1)
    if rank >= world_size:
        raise ConfigError(
            f"the rank is {rank} in a world of {world_size}",
            origin="ElasticSampler",
            why=f"ranks count from 0 to {world_size - 1} there",
            hint="leave both out under echelon run, torchrun, srun or mpirun; elsewhere give both",
        )
    return rank, world_size


def _whole(name: str, value: Any, *, least: int | None = None) -> int:
    """Any kind of integer as an int; a float, even a round one, is refused."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _bad_number(name, value, "a whole number", why=str(error)) from error
    if least is not None and number < least:
        raise _bad_number(name, value, f"{least} or more")
    return number


def _bad_number(name: str, value: Any, wanted: str, *, why: str | None = None) -> ConfigError:
    return ConfigError(f"the {name} is {value!r}", origin="ElasticSampler", why=why, hint=f"give it {wanted}")
