"""Where training stands in its data, and the loop that goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any, Protocol, TypeVar

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.bar import Bar
from echelon.runtime.sampler import Batches, ElasticSampler

Batch = TypeVar("Batch")


class Loop(Protocol):
    """What a walk through the data needs of a Checkpoint."""

    step: int
    bar: Bar

    @property
    def saved(self) -> int | None: ...
    def after_step(self) -> None: ...
    def resume_rng(self) -> None: ...


class Position:
    """The epoch, and the batches of it that are done: for loaders that have no ElasticSampler to remember it."""

    __slots__ = ("batch", "epoch", "open")

    def __init__(self) -> None:
        self.epoch = 0
        self.batch = 0
        self.open = False
        """Inside a step: whether it is done is not known."""

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch}

    def load(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])

    def doubt(self, parts: Mapping[str, Any], before: int, now: int) -> str | None:
        """What cannot be told of an epoch that other ranks began, where no ElasticSampler remembers its samples."""
        if before == now or not self.batch or any(isinstance(part, ElasticSampler) for part in parts.values()):
            return None
        return (
            f"{before} ranks left the epoch after batch {self.batch}, and here are {now}: that many batches of each"
            " loader are passed over, so samples may be lost or come twice; an ElasticSampler deals them out exactly"
        )

    def epoch_in(self, parts: Mapping[str, Any]) -> int:
        samplers = [part for part in parts.values() if isinstance(part, ElasticSampler)]
        return samplers[0].epoch if samplers else self.epoch


def walk(
    loop: Loop,
    position: Position,
    parts: Mapping[str, Any],
    loader: Iterable[Batch],
    *,
    epochs: int | None,
    until: int | None,
) -> Iterator[Batch]:
    sampler = sampler_of(loader)
    _check_saved(sampler, parts)
    before: int | None = None
    for _ in _passes(position, parts, epochs, until):
        if until is not None and loop.step >= until:
            return
        if loop.step == before:
            raise ConfigError(
                "the loader has no batches", origin="checkpoint.steps", why="a whole epoch of it was empty"
            )
        before = loop.step if before is not None or not loop.step else -1  # the first may be the rest of an epoch
        _begin_epoch(loader, position.epoch_in(parts))
        yield from _one_pass(loop, position, sampler, loader, until)
        if until is None or loop.step < until:
            _end_epoch(sampler, position, again=epochs is not None or until is not None)


def _passes(position: Position, parts: Mapping[str, Any], epochs: int | None, until: int | None) -> Iterator[None]:
    """Once through the loader, or until the epochs are done, or for as long as somebody asks."""
    if epochs is not None:
        while position.epoch_in(parts) < epochs:
            yield
    elif until is not None:
        yield from repeat(None)
    else:
        yield


def _one_pass(
    loop: Loop, position: Position, sampler: ElasticSampler | None, loader: Iterable[Batch], until: int | None
) -> Iterator[Batch]:
    counts = batch_counts(sampler, loader) if sampler is not None else None
    batches = iter(loader)
    if sampler is None:
        for _ in islice(batches, position.batch):
            pass  # done before the stop
    loop.resume_rng()
    bar = loop.bar if loop.bar.shown else None
    for batch in batches:
        position.open = True
        yield batch
        position.open = False
        position.batch += 1
        if sampler is not None and counts is not None:
            sampler.advance(next(counts))
        loop.after_step()
        if bar is not None:
            bar.show(loop.step, loop.saved, until)
        if until is not None and loop.step >= until:
            return


def _begin_epoch(loader: Any, epoch: int) -> None:
    for holder in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        if holder is not None and hasattr(holder, "set_epoch"):
            holder.set_epoch(epoch)


def _end_epoch(sampler: ElasticSampler | None, position: Position, *, again: bool) -> None:
    position.epoch, position.batch = position.epoch + 1, 0
    if sampler is not None and again:
        sampler.set_epoch(sampler.epoch + 1)


def sampler_of(loader: Any) -> ElasticSampler | None:
    """The one that a DataLoader draws from, by itself or in batches."""
    holders = (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None))
    for holder in holders:
        inner = holder if isinstance(holder, ElasticSampler) else getattr(holder, "sampler", None)
        if isinstance(inner, ElasticSampler):
            return inner
    return None


def batch_counts(sampler: ElasticSampler, loader: Any) -> Iterator[int]:
    """Samples that all ranks together are done with, batch after batch; with the last batch the epoch is over."""
    own, length = len(sampler), sampler.length
    size = _batch_size(loader)
    whole, rest = divmod(own, size)
    batches = whole + (1 if rest and not _drops_rest(loader) else 0)
    return chain(repeat(size * sampler.world_size, batches - 1), repeat(length, min(1, batches)))


def _batch_size(loader: Any) -> int:
    if isinstance(loader, Batches):
        return loader.batch_size
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None) or getattr(loader, "batch_size", None)
    return int(size or 1)


def _drops_rest(loader: Any) -> bool:
    return bool(getattr(getattr(loader, "batch_sampler", None), "drop_last", False))


def _check_saved(sampler: ElasticSampler | None, parts: Mapping[str, Any]) -> None:
    if sampler is not None and not any(part is sampler for part in parts.values()):
        raise ConfigError(
            "the loader's ElasticSampler is not saved, so an epoch could not be continued",
            origin="checkpoint.steps",
            hint="echelon.Checkpoint(sampler=sampler, ...)",
        )
