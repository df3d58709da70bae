"""The position of training in its data, and the training loop that continues from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, repeat
from time import time_ns
from typing import Any, Protocol, TypeVar

from echelon.errors import ConfigError
from echelon.train.checkpoint import state
from echelon.train.checkpoint.loaders import (
    find_position_holder,
    has_state,
    is_finished,
    is_position,
    keep_at_epoch_end,
    reads_elastic_sampler,
)
from echelon.train.checkpoint.tree import FlatState
from echelon.train.progress import ProgressBar, StepClock
from echelon.train.sampler import Batches, ElasticSampler

Batch = TypeVar("Batch")
ADOPTED_LOADER = ""
"""The name of a loader that is not a part of the Checkpoint. A part never has an empty name."""


class LoopOwner(Protocol):
    """The attributes of a Checkpoint that the training loop uses."""

    step: int
    bar: ProgressBar
    clock: StepClock

    @property
    def saved(self) -> int | None: ...
    def after_step(self) -> None: ...
    def resume_rng(self) -> None: ...


class DataPosition:
    """The current epoch, and the number of its batches that are done."""

    __slots__ = ("_loader", "_loader_state", "_say", "batch", "count", "epoch", "left", "open", "restored", "start")

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self._say = say
        self.epoch = 0
        self.batch = 0
        self.open = False
        """True inside a step: it is not known whether the step is done."""
        self.left = False
        """True if the loop was left inside the open step."""
        self.count: Callable[[], None] | None = None
        """Counts the batch of the open step as done."""
        self.restored: dict[str, bool] = {}
        """Parts whose loaded state is not used yet. The value is True if that state is at the end of its epoch."""
        self.start: dict[str, Any] | None = None
        """This rank's random number generators at the start of the epoch, when a shuffling loader draws its order."""
        self._loader: Any = None
        self._loader_state: Any = None

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch}

    def own_state(self) -> dict[str, Any]:
        """The part of the position that differs between ranks."""
        loader = self._loader_state if self._loader is None else self._adopted_loader_state()
        return {"start": self.start if self.batch else None, "loader": loader}

    def _adopted_loader_state(self) -> Any:
        """The state of the adopted loader. None, not an error, if it cannot be saved: it is not a part of the
        Checkpoint."""
        try:
            state = self._loader.state_dict()
            FlatState(state, "state")
        except Exception as error:  # noqa: BLE001  state_dict is code of the script
            reason = error.what if isinstance(error, ConfigError) else repr(error)
            kind = type(self._loader).__qualname__
            self._say(f"the state of the {kind} cannot be saved; resuming skips the batches that are done ({reason})")
            self._loader = state = None
        return state

    def load(
        self,
        state: Mapping[str, Any],
        *,
        own: Mapping[str, Any] | None = None,
        restored: Mapping[str, bool] | None = None,
    ) -> None:
        """`own` is the saved `own_state` of this rank; None if another number of ranks saved it."""
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
        self.start, self._loader_state = (own["start"], own["loader"]) if own is not None else (None, None)
        self.restored = dict(restored or {})

    def adopt(self, loader: Any) -> str | None:
        """Adds a loader that is not a part to the saves, and loads its saved state. Returns its name if loaded."""
        self._loader = loader
        state, self._loader_state = self._loader_state, None
        if state is None or not is_position(state):
            return None
        loader.load_state_dict(state)
        self.restored[ADOPTED_LOADER] = is_finished(state)
        return ADOPTED_LOADER

    def close_step(self) -> bool:
        """Counts the open step as done, after `break` or `return`. Returns whether there was one."""
        was_open, self.open, self.left = self.open, False, False
        if was_open and self.count is not None:
            self.count()
        return was_open

    def end_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0

    def resume_warning(self, parts: Mapping[str, Any], before: int, now: int) -> str | None:
        """A warning if an epoch continues on another number of ranks without an ElasticSampler; None otherwise."""
        if before == now or not self.batch or any(isinstance(part, ElasticSampler) for part in parts.values()):
            return None
        return (
            f"resuming mid-epoch on {now} ranks instead of {before}: skipping {self.batch} batches per rank;"
            " samples may be missed or repeated (echelon.ElasticSampler avoids this)"
        )

    def epoch_in(self, parts: Mapping[str, Any]) -> int:
        samplers = [part for part in parts.values() if isinstance(part, ElasticSampler)]
        return samplers[0].epoch if samplers else self.epoch


def iterate_steps(
    loop: LoopOwner,
    position: DataPosition,
    parts: Mapping[str, Any],
    loader: Iterable[Batch],
    *,
    epochs: int | None,
    until: int | None,
) -> Iterator[Batch]:
    """Yields batches from the position on, and counts each as a step. Raises ConfigError for an unusable loader."""
    if position.left and position.close_step():
        loop.step += 1
    sampler = find_elastic_sampler(loader)
    _check_sampler(sampler, loader, parts)
    holder = None if sampler is not None else find_position_holder(loader, parts)
    if sampler is None and holder is None and has_state(loader):
        holder = position.adopt(loader)
    if holder is not None and holder in position.restored:
        keep_at_epoch_end(loader)
    if holder is not None and position.restored.get(holder) and position.batch:
        position.end_epoch()  # the loader is at the end of its epoch, so iterating it starts the next one
    before: int | None = None
    for epoch in _remaining_epochs(position, sampler, epochs, until):
        if until is not None and loop.step >= until:
            return
        if loop.step == before:
            raise ConfigError("the loader has no batches", origin="checkpoint.steps", why="an epoch had no batches")
        before = loop.step if before is not None or not loop.step else -1  # the first pass may be the rest of an epoch
        _set_loader_epoch(loader, epoch)
        yield from _run_epoch(
            loop, position, sampler, _iterator_at_position(position, sampler, loader, holder), loader, until
        )
        if until is None or loop.step < until:
            _end_epoch(sampler, position, again=epochs is not None or until is not None)


def _remaining_epochs(
    position: DataPosition, sampler: ElasticSampler | None, epochs: int | None, until: int | None
) -> Iterator[int]:
    """The epoch of each pass: all remaining epochs, without end if only `until` is given, or one pass without both."""
    while True:
        epoch = sampler.epoch if sampler is not None else position.epoch
        if epochs is not None and epoch >= epochs:
            return
        yield epoch
        if epochs is None and until is None:
            return


def _iterator_at_position(
    position: DataPosition, sampler: ElasticSampler | None, loader: Iterable[Batch], holder: str | None
) -> Iterator[Batch]:
    """An iterator at the position. The loaded state of the sampler or holder sets it, or batches are skipped.

    Skipping does not change the random number generators.
    """
    if sampler is not None or (holder is not None and position.restored.pop(holder, None) is not None):
        return iter(loader)
    if not position.batch:
        position.start = state.read_loader_rng_states(loader)
        return iter(loader)
    now = state.read_rng_states()
    if position.start is not None:
        state.restore_loader_rng_states(loader, position.start)
    batches = iter(loader)
    for _ in islice(batches, position.batch):
        pass
    state.restore_rng_states(now)
    return batches


def _run_epoch(
    loop: LoopOwner,
    position: DataPosition,
    sampler: ElasticSampler | None,
    batches: Iterator[Batch],
    loader: Iterable[Batch],
    until: int | None,
) -> Iterator[Batch]:
    counts = global_batch_sizes(sampler, loader) if sampler is not None else None
    position.count = count = partial(_count_batch, position, sampler, counts)
    loop.resume_rng()
    bar, clock = loop.bar if loop.bar.shown else None, loop.clock
    clock.counts_steps = True
    asked = time_ns()
    for batch in batches:
        clock.input_ns = time_ns() - asked
        position.open = True
        try:
            yield batch
        except GeneratorExit:
            position.left = True
            raise
        position.open = False
        count()
        loop.after_step()
        if bar is not None:
            bar.show(loop.step, loop.saved, until)
        if until is not None and loop.step >= until:
            return
        asked = time_ns()


def _count_batch(position: DataPosition, sampler: ElasticSampler | None, counts: Iterator[int] | None) -> None:
    position.batch += 1
    if sampler is not None and counts is not None:
        sampler.advance(next(counts))


def _set_loader_epoch(loader: Any, epoch: int) -> None:
    for holder in (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        if holder is not None and hasattr(holder, "set_epoch"):
            holder.set_epoch(epoch)


def _end_epoch(sampler: ElasticSampler | None, position: DataPosition, *, again: bool) -> None:
    position.end_epoch()
    if sampler is not None and again:
        sampler.set_epoch(sampler.epoch + 1)


def find_elastic_sampler(loader: Any) -> ElasticSampler | None:
    """The ElasticSampler that a DataLoader draws from, directly or through a batch sampler; None if it has none."""
    holders = (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None))
    for holder in holders:
        inner = holder if isinstance(holder, ElasticSampler) else getattr(holder, "sampler", None)
        if isinstance(inner, ElasticSampler):
            return inner
    return None


def global_batch_sizes(sampler: ElasticSampler, loader: Any) -> Iterator[int]:
    """The number of samples that all ranks together have done with each batch. The last one completes the epoch."""
    own, length = len(sampler), sampler.length
    size = _batch_size(loader)
    whole, rest = divmod(own, size)
    batches = whole + (1 if rest and not _drops_last_batch(loader) else 0)
    return chain(repeat(size * sampler.world_size, batches - 1), repeat(length, min(1, batches)))


def _batch_size(loader: Any) -> int:
    if isinstance(loader, Batches):
        return loader.batch_size
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None) or getattr(loader, "batch_size", None)
    return int(size or 1)


def _drops_last_batch(loader: Any) -> bool:
    return bool(getattr(getattr(loader, "batch_sampler", None), "drop_last", False))


def _check_sampler(sampler: ElasticSampler | None, loader: Any, parts: Mapping[str, Any]) -> None:
    if sampler is not None and not any(part is sampler for part in parts.values()):
        raise ConfigError(
            "the loader's ElasticSampler is not saved, so an epoch could not be continued",
            origin="checkpoint.steps",
            hint="echelon.Checkpoint(sampler=sampler, ...)",
        )
    if sampler is None and reads_elastic_sampler(loader):
        raise ConfigError(
            f"steps() was given a {type(loader).__qualname__} that hides an ElasticSampler",
            origin="checkpoint.steps",
            why="without the batch size, the samples that are done cannot be counted, and no epoch would end",
            hint="give steps() the DataLoader itself, with sampler=sampler or batch_sampler=sampler.batches(size)",
        )
