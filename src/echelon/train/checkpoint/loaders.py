"""The search for the part of a Checkpoint that holds the position in the data, so that no batch is skipped twice.

A loader with a state_dict, such as torchdata's StatefulDataLoader, continues at its position after its state is loaded.
Then `steps` must not skip the batches that are done. For a loader without such a state, `steps` skips them.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from echelon.errors import ConfigError
from echelon.train.sampler import ElasticSampler

MAX_DEPTH = 4
MAX_OBJECTS = 500
MAX_ITEMS = 100
"""Bounds of the search through a loader's attributes. Real wrappers are one or two levels deep."""
MAPPING_TYPES = (dict, OrderedDict, defaultdict)
SEQUENCE_TYPES = (list, tuple, set, frozenset, deque)
SCALAR_TYPES = (str, bytes, int, float, complex, type(None))


def is_loader(part: Any) -> bool:
    """Whether a part yields batches. Its state belongs to one rank and cannot be used on another number of ranks."""
    return _is_iterable(part) and not isinstance(part, _sampler_types())


def check_loaders(loaders: Mapping[str, Any]) -> None:
    """Raises ConfigError for a loader whose state cannot be used as the position."""
    for name, part in loaders.items():
        if not has_state(part):
            raise ConfigError(
                f"{name!r} cannot be saved: it wraps a loader that has no state_dict",
                origin="echelon.Checkpoint",
                hint="leave it out, or use accelerate's use_stateful_dataloader=True",
            )
        if reads_elastic_sampler(part):
            raise ConfigError(
                f"{name!r} reads from an ElasticSampler, which holds the position itself",
                origin="echelon.Checkpoint",
                why="with both states loaded, the same samples would be skipped twice",
                hint=f"leave {name!r} out and keep the sampler: echelon.Checkpoint(sampler=sampler, ...)",
            )


def reads_elastic_sampler(loader: Any) -> bool:
    """Whether the loader or an object in its attributes is an ElasticSampler."""
    return any(isinstance(found, ElasticSampler) for found in _reachable_objects(loader))


def has_state(loader: Any) -> bool:
    """Whether a loader has a state. accelerate's wrapper has the methods even if the wrapped loader has none."""
    inner = vars(loader).get("base_dataloader", loader) if hasattr(loader, "__dict__") else loader
    return all(callable(getattr(inner, name, None)) for name in ("state_dict", "load_state_dict"))


def find_position_holder(loader: Iterable[Any], parts: Mapping[str, Any]) -> str | None:
    """The name of the part whose state is this loader's position. If it is None, batches are skipped instead.

    Raises ConfigError if the loader reads from that part in advance: loading its state would skip batches that were
    never yielded.
    """
    names = {id(part): name for name, part in parts.items() if _is_iterable(part)}
    unmoved = (
        {id(found.dataset) for found in _reachable_objects(loader) if _leaves_dataset_unmoved(found)}
        if names
        else set()
    )
    holders = {known: name for known, name in names.items() if known not in unmoved}
    ends = {*names, *unmoved}
    objects = list(_reachable_objects(loader, ends)) if holders else []
    for reader in objects:
        if id(reader) not in ends:
            _refuse_read_ahead(reader, _names_of_objects(_reachable_objects(reader, ends), holders))
    held = _names_of_objects(objects, holders)
    if not held:
        _refuse_hidden_loader(loader, {name: part for name, part in parts.items() if is_loader(part)})
    return held[0] if held else None


def _names_of_objects(objects: Iterable[Any], names: Mapping[int, str]) -> list[str]:
    return [names[id(found)] for found in objects if id(found) in names]


def is_finished(state: Any) -> bool:
    """Whether a loader's state is from the end of its epoch, as accelerate's is after the last batch."""
    return isinstance(state, Mapping) and state.get("_iterator_finished") is True


def is_position(state: Any) -> bool:
    """Whether a loader's state holds a position in its data, not only a number of batches.

    For a stream without a state, torchdata's state is such a number. torchdata skips that many batches on resume, as
    `steps` would, but counts them twice in its next state.
    """
    if not isinstance(state, Mapping):
        return True
    workers = state.get("_snapshot", {}).get("_worker_snapshots", {"main": state})
    return not any(_is_stream_without_state(worker) for worker in workers.values())


def keep_at_epoch_end(loader: Iterable[Any]) -> None:
    """Makes a loader whose state is at the end of its epoch yield nothing, as in an uninterrupted run.

    torchdata's nodes.Loader would start the next epoch, and its state_dict would stay at that end (torchdata 0.11).
    """
    nodes = sys.modules.get("torchdata.nodes")
    for found in _reachable_objects(loader):
        if nodes is not None and isinstance(found, nodes.Loader):
            found.restart_on_stop_iteration = False


def _is_stream_without_state(worker: Mapping[str, Any]) -> bool:
    fetcher = worker.get("fetcher_state")
    return fetcher is not None and fetcher["dataset_iter_state"] is None and worker["dataset_state"] is None


def _refuse_read_ahead(reader: Any, held: list[str]) -> None:
    """Raises ConfigError if the reader draws in advance from one of the parts in `held`."""
    how = _read_ahead_reason(reader) if held else None
    if how is not None:
        raise ConfigError(
            f"the state of {held[0]!r} cannot be the position in the data",
            origin="checkpoint.steps",
            why=f"{how}, so the state is ahead of the batches that were used, and resuming would lose the others",
            hint=f"use echelon.ElasticSampler, or save torchdata's StatefulDataLoader in place of {held[0]!r}",
        )


def _read_ahead_reason(reader: Any) -> str | None:
    """A sentence that describes how a loader draws batches in advance; None if it does not."""
    attributes = vars(reader) if hasattr(reader, "__dict__") else {}
    workers = attributes.get("num_workers", 0)
    if _is_data_loader(reader) and workers:
        return f"a DataLoader with num_workers={workers} draws batches in advance"
    if "base_dataloader" in attributes:
        return "accelerate's loader draws one batch in advance"
    nodes = sys.modules.get("torchdata.nodes")
    if nodes is not None and isinstance(reader, (nodes.Loader, nodes.BaseNode)):
        return f"torchdata's {type(reader).__qualname__} may draw batches in advance"
    return None


def _refuse_hidden_loader(loader: Iterable[Any], loaders: Mapping[str, Any]) -> None:
    """Raises ConfigError for an iterator such as map(f, loader), which may read from one of the saved loaders."""
    if isinstance(loader, Iterator) and loaders:
        name = next(iter(loaders))
        raise ConfigError(
            f"steps() was given a {type(loader).__qualname__}, and the loader {name!r} is saved as a part",
            origin="checkpoint.steps",
            why=f"if it reads from {name!r}, resuming would skip the same batches twice",
            hint=f"give steps() the loader itself, or leave {name!r} out of Checkpoint",
        )


def _is_iterable(part: Any) -> bool:
    from torch.nn import Module
    from torch.optim import Optimizer

    return hasattr(part, "__iter__") and not isinstance(part, (Module, Optimizer, ElasticSampler))


def _sampler_types() -> tuple[type, ...]:
    from torch.utils.data import Sampler

    return (Sampler,)


def _is_data_loader(item: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(item, DataLoader)


def _leaves_dataset_unmoved(item: Any) -> bool:
    """Whether iterating does not change the dataset's state: workers iterate copies, and a map-style one is indexed."""
    from torch.utils.data import IterableDataset

    return _is_data_loader(item) and (item.num_workers > 0 or not isinstance(item.dataset, IterableDataset))


def _reachable_objects(loader: Any, ends: Collection[int] = ()) -> Iterator[Any]:
    """The loader and the objects in its attributes, breadth first. Does not look into objects whose id is in `ends`."""
    level, seen = [loader], {id(loader)}
    for _ in range(MAX_DEPTH):
        following: list[Any] = []
        for item in level:
            yield item
            for value in _attribute_values(item) if id(item) not in ends else ():
                if id(value) not in seen and len(seen) < MAX_OBJECTS:
                    seen.add(id(value))
                    following.append(value)
        level = following


def _container_items(value: Any, depth: int) -> Iterator[Any]:
    """The value itself, or its items if it is a container. Skips numbers and text."""
    if type(value) in MAPPING_TYPES or type(value) in SEQUENCE_TYPES:
        inner = value.values() if type(value) in MAPPING_TYPES else value
        for item in islice(inner, MAX_ITEMS) if depth else ():
            yield from _container_items(item, depth - 1)
    elif not isinstance(value, SCALAR_TYPES):
        yield value


def _attribute_values(item: Any) -> Iterator[Any]:
    from torch.nn import Module

    if isinstance(item, (type, ModuleType, FunctionType, MethodType, Module)):
        return
    slots = [slot for kind in type(item).__mro__ for slot in getattr(kind, "__slots__", ())]
    slotted = [getattr(item, slot) for slot in slots if not slot.startswith("__") and hasattr(item, slot)]
    for value in [*slotted, *(vars(item).values() if hasattr(item, "__dict__") else ())]:
        yield from _container_items(value, MAX_DEPTH)
