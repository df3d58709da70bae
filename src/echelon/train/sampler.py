"""`echelon.ElasticSampler`: each sample once per epoch, over any number of restarts and on any number of ranks."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from echelon.codec import decode, encode
from echelon.errors import ConfigError
from echelon.record import record
from echelon.train.permutation import MAX_LENGTH, epoch_permutation
from echelon.train.rank import Rank

STATE_VERSION = 1  # of the order and of the fields: a state of another version cannot be continued exactly
BLOCK_SIZE = 32768  # indices computed at a time: two milliseconds of work and two megabytes, on one thread


@record
class SamplerState:
    """The position in an epoch. It is the same on every rank, and sufficient to continue on other numbers of ranks."""

    version: int
    length: int
    seed: int
    shuffle: bool
    epoch: int
    consumed: int


class ElasticSampler:
    """Yields the samples of this rank, from the current position in the epoch.

        sampler = echelon.ElasticSampler(dataset, seed=7)
        loader = DataLoader(dataset, sampler=sampler, batch_size=32, num_workers=4)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for x, y in loader:
                ...
                sampler.advance(len(x) * sampler.world_size)

    The order of an epoch depends only on seed, epoch and length. The ranks take samples from it in turn. Prefetching
    does not change the position: only `advance` does, and a second iteration without it yields the same samples. So
    the state can be saved after any step, and loaded into a larger or smaller world.

    An incomplete last round is filled up with samples from the front of the order, fewer than there are ranks. With
    `drop_last`, that round is left out.
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
        """`dataset` may be the number of samples. Rank and world size default to those of `Rank.from_environ`.

        Raises ConfigError.
        """
        self.rank, self.world_size = _rank_and_world_size(rank, world_size)
        self.drop_last = drop_last
        self._state = SamplerState(
            version=STATE_VERSION,
            length=_dataset_length(dataset),
            seed=_as_int("seed", seed),
            shuffle=bool(shuffle),
            epoch=0,
            consumed=0,
        )
        self._consumed = 0  # outside of the state, like the length: every step uses them
        self._length = self._state.length

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def consumed(self) -> int:
        """Samples of this epoch that all ranks together have finished."""
        return self._consumed

    @property
    def length(self) -> int:
        """Samples per epoch."""
        return self._length

    def __len__(self) -> int:
        """Samples that this rank has left in this epoch. The number is the same on every rank."""
        return len(self._positions())

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(_index_blocks(self._current_state, self._positions()))

    def batches(self, batch_size: int) -> Batches:
        """For `DataLoader(batch_sampler=...)`: the same samples in lists. The last list may be shorter."""
        return Batches(self, _as_int("batch_size", batch_size, least=1))

    def advance(self, count: int) -> None:
        """Marks `count` samples, summed over all ranks, as finished. Samples that fill the last round do not count."""
        if type(count) is not int or count < 0:  # called every step, so the common case is checked first
            count = _as_int("count", count, least=0)
        consumed = self._consumed + count
        self._consumed = consumed if consumed < self._length else self._length

    def set_epoch(self, epoch: int) -> None:
        """Starts `epoch`. Continues it if it is the current one, as a resumed loop requires."""
        number = _as_int("epoch", epoch, least=0)
        if number != self.epoch:
            self._state, self._consumed = replace(self._state, epoch=number), 0

    def state_dict(self) -> dict[str, int]:
        state: dict[str, int] = encode(self._current_state)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from the saved position, with the saved seed and shuffle: an epoch keeps its order.

        Raises ConfigError.
        """
        self._state = _validated_state(state_dict, length=self._length)
        self._consumed = self._state.consumed

    @property
    def _current_state(self) -> SamplerState:
        return replace(self._state, consumed=self._consumed)

    def _positions(self) -> range:
        return rank_positions(self._current_state, rank=self.rank, world_size=self.world_size, drop_last=self.drop_last)


@dataclass(frozen=True)
class Batches:
    sampler: ElasticSampler
    batch_size: int

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        return iter(lambda: list(islice(indices, self.batch_size)), [])

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)


def rank_positions(state: SamplerState, *, rank: int, world_size: int, drop_last: bool) -> range:
    """The positions in the epoch's order that a rank takes. Positions past the end wrap around to the front."""
    remaining = state.length - state.consumed
    rounds = remaining // world_size if drop_last else -(-remaining // world_size)
    first = state.consumed + rank
    return range(first, first + rounds * world_size, world_size)


def _index_blocks(state: SamplerState, positions: range) -> Iterator[list[int]]:
    """The samples at these positions, in lists of up to 32,768."""
    import torch  # imported here, so that a script without torch can import echelon

    order = epoch_permutation(state.length, seed=state.seed, epoch=state.epoch)
    for start in range(0, len(positions), BLOCK_SIZE):
        part = positions[start : start + BLOCK_SIZE]
        block = torch.arange(part.start, part.stop, part.step, device="cpu")
        if part[-1] >= state.length:
            block %= state.length
        yield (order.indices_at(block) if state.shuffle else block).tolist()


def _validated_state(state_dict: Mapping[str, Any], *, length: int) -> SamplerState:
    """Raises ConfigError for a state with which samples would be missed or repeated."""
    try:
        state = decode(SamplerState, dict(state_dict))
    except (TypeError, ValueError) as error:
        raise _state_error("this is not the state of an ElasticSampler", why=str(error)) from error
    if state.version != STATE_VERSION:
        raise _state_error(
            f"the state has version {state.version}; this version of Echelon reads version {STATE_VERSION}",
            why="the order of samples depends on the version",
        )
    if state.length != length:
        raise _state_error(
            f"the state is for {state.length} samples, but the dataset has {length}",
            why="the order depends on the length: samples would be missed or repeated",
        )
    if state.epoch < 0 or not 0 <= state.consumed <= length:
        raise _state_error(
            f"the state has epoch {state.epoch} and {state.consumed} consumed samples",
            why=f"epoch must be 0 or more, consumed samples 0 to {length}",
        )
    return state


def _state_error(what: str, *, why: str) -> ConfigError:
    hint = "load the state that was saved with this dataset, or restart the epoch without load_state_dict"
    return ConfigError(what, origin="ElasticSampler.load_state_dict", why=why, hint=hint)


def _dataset_length(dataset: Sized | int) -> int:
    name = "length of the dataset"
    length = _as_int(name, len(dataset) if isinstance(dataset, Sized) else dataset, least=0)
    if length > MAX_LENGTH:
        raise _number_error(name, length, f"{MAX_LENGTH} or less")
    return length


def _rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None or world_size is None:
        detected = Rank.from_environ(os.environ)
        rank = detected.rank if rank is None else rank
        world_size = detected.world_size if world_size is None else world_size
    rank, world_size = _as_int("rank", rank, least=0), _as_int("world_size", world_size, least=1)
    if rank >= world_size:
        raise ConfigError(
            f"the rank is {rank}, but the world size is {world_size}",
            origin="ElasticSampler",
            why=f"ranks are 0 to {world_size - 1}",
            hint="omit both under echelon run, torchrun, srun or mpirun; otherwise set both",
        )
    return rank, world_size


def _as_int(name: str, value: Any, *, least: int | None = None) -> int:
    """Accepts every integer type. Raises ConfigError for a float, even for 1.0."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _number_error(name, value, "a whole number", why=str(error)) from error
    if least is not None and number < least:
        raise _number_error(name, value, f"{least} or more")
    return number


def _number_error(name: str, value: Any, wanted: str, *, why: str | None = None) -> ConfigError:
    return ConfigError(f"the {name} is {value!r}", origin="ElasticSampler", why=why, hint=f"pass {wanted}")
