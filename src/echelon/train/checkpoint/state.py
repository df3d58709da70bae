"""The state of models, optimizers, schedulers and random number generators, read and restored."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from echelon.errors import ConfigError
from echelon.train.checkpoint.tree import FlatState, StatePath, is_sharded


def read_rng_states() -> dict[str, Any]:
    import torch

    state: dict[str, Any] = {"python": _pack_python_rng(random.getstate()), "torch": torch.get_rng_state()}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state["numpy"] = numpy_random.get_state()
    if _uses_cuda():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_rng_states(state: dict[str, Any]) -> None:
    """Restores the generators. A generator that was not saved is not changed."""
    import torch

    random.setstate(_unpack_python_rng(state["python"]))
    torch.set_rng_state(state["torch"])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and "numpy" in state:
        numpy_random.set_state(state["numpy"])
    if _uses_cuda() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def read_loader_rng_states(loader: Any) -> dict[str, Any]:
    """The states of the generators when a loader starts an epoch, and of the loader's own generator if it has one."""
    generator = getattr(loader, "generator", None)
    state = read_rng_states()
    return state if generator is None else {**state, "loader": generator.get_state()}


def restore_loader_rng_states(loader: Any, state: dict[str, Any]) -> None:
    """Restores the states from the start of the epoch, so that the loader draws the same order again."""
    restore_rng_states(state)
    generator = getattr(loader, "generator", None)
    if generator is not None and "loader" in state:
        generator.set_state(state["loader"])


def _pack_python_rng(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Python's generator state with its 625 numbers as bytes, which are faster to copy: training waits for the copy."""
    version, numbers, rest = state
    return version, array("I", numbers).tobytes(), rest


def _unpack_python_rng(state: tuple[Any, ...]) -> tuple[Any, ...]:
    version, data, rest = state
    return version, tuple(array("I", data)), rest


def _uses_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


RESERVED_NAME = "echelon"


def check_parts(parts: Mapping[str, Any], origin: str) -> None:
    """Raises ConfigError for an object without state_dict and load_state_dict, and for a reserved name."""
    for name, part in parts.items():
        absent = [method for method in ("state_dict", "load_state_dict") if not callable(getattr(part, method, None))]
        if name == RESERVED_NAME or absent:
            why = "the name is reserved" if name == RESERVED_NAME else f"it has no {' and no '.join(absent)}"
            raise ConfigError(f"{name!r} cannot be saved: it is a {type(part).__qualname__}", origin=origin, why=why)


def collect_states(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _part_state(part, parts) for name, part in parts.items()}


def load_states(parts: Mapping[str, Any], states: Mapping[str, Any], *, origin: str) -> None:
    """Loads the states, models first: an optimizer of sharded tensors needs its model.

    Raises ConfigError if a state does not fit its part.
    """
    for name in sorted(parts, key=lambda name: not _is_module(parts[name])):
        try:
            _load_part(parts[name], states[name], parts)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"the saved state of {name!r} does not fit this {type(parts[name]).__qualname__}",
                origin=origin,
                why=f"{type(error).__name__}: {error}",
                hint="build the same model and optimizer as the run that saved it, or give another folder",
            ) from error


def check_part_names(parts: Mapping[str, Any], saved: Sequence[str], *, origin: str) -> None:
    """Raises ConfigError if a part was not saved. Saved parts that are not in `parts` are ignored.

    It is called before anything is loaded.
    """
    absent = [name for name in parts if name not in saved]
    if absent:
        there = ", ".join(name for name in saved if name != RESERVED_NAME)
        raise ConfigError(
            f"the checkpoint has no {absent[0]!r}",
            origin=origin,
            why=f"it was saved with {there}",
            hint="give Checkpoint the same names as the run that saved it, or another folder",
        )


def optimizer_classes(parts: Mapping[str, Any]) -> dict[str, str]:
    """The class of each optimizer by the name of its part. It is saved because torch loads the state of one optimizer
    class into another without an error."""
    return {name: type(_unwrap_optimizer(part)).__qualname__ for name, part in parts.items() if _is_optimizer(part)}


def check_optimizer_classes(parts: Mapping[str, Any], saved: Mapping[str, str], *, origin: str) -> None:
    """Raises ConfigError if the class of an optimizer differs from the saved one."""
    for name, kind in optimizer_classes(parts).items():
        if saved.get(name, kind) != kind:
            raise ConfigError(
                f"{name!r} is {kind}, but its saved state is from {saved[name]}",
                origin=origin,
                why="the state of one optimizer class cannot be loaded into another",
                hint=f"use {saved[name]} again, or leave {name!r} out of Checkpoint to start with a new state",
            )


def _unwrap_optimizer(optimizer: Any) -> Any:
    """The user's optimizer inside accelerate's wrapper."""
    inner = getattr(optimizer, "optimizer", None)
    return _unwrap_optimizer(inner) if _is_optimizer(inner) else optimizer


def target_lookup(parts: Mapping[str, Any]) -> Callable[[StatePath], Any]:
    """A function that returns the present tensor at a path, if data can be read into it: it is sharded, or contiguous
    in host memory.

    Covers models and optimizers only: loading replaces all of their tensors.
    """
    known = {name: part for name, part in parts.items() if _is_module(part) or _is_optimizer(part)}
    present = FlatState({name: _part_state(part, parts) for name, part in known.items()})
    found = {
        path: tensor for tensor, path in zip(present.tensors, present.paths, strict=True) if _can_be_read_into(tensor)
    }
    return found.get


def _can_be_read_into(tensor: Any) -> bool:
    return is_sharded(tensor) or (tensor.device.type == "cpu" and tensor.is_contiguous())


def replicated_tensor_test(parts: Mapping[str, Any]) -> Callable[[StatePath, Any], bool]:
    """A function that returns whether a tensor is equal on all ranks. Parameters and optimizer states are; buffers may
    differ."""
    optimizers = {name for name, part in parts.items() if _is_optimizer(part)}
    models = [unwrap_model(part) for part in parts.values() if _is_module(part)]
    addresses = {parameter.data_ptr() for model in models for parameter in model.parameters()}
    return lambda path, tensor: path[0] in optimizers or tensor.data_ptr() in addresses


def _part_state(part: Any, parts: Mapping[str, Any]) -> Any:
    if _is_module(part):
        model = unwrap_model(part)
        return _sharded_model_state(model) if _has_sharded_parameters(model) else model.state_dict()
    model = _sharded_model_of(part, parts)
    if model is not None:
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        return get_optimizer_state_dict(model, part)
    return part.state_dict()


def _sharded_model_state(model: Any) -> Any:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    return get_model_state_dict(model)


def _load_part(part: Any, state: Any, parts: Mapping[str, Any]) -> None:
    if _is_module(part):
        _load_model(unwrap_model(part), state)
        return
    model = _sharded_model_of(part, parts)
    if model is None:
        part.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

    set_optimizer_state_dict(model, part, state)


def _load_model(model: Any, state: Any) -> None:
    if not _has_sharded_parameters(model):
        model.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import set_model_state_dict

    set_model_state_dict(model, state)


def unwrap_model(model: Any) -> Any:
    """The user's module inside DistributedDataParallel and torch.compile."""
    from torch.nn.parallel import DistributedDataParallel

    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model._orig_mod
        else:
            return model


def _is_module(part: Any) -> bool:
    from torch.nn import Module

    return isinstance(part, Module)


def _is_optimizer(part: Any) -> bool:
    from torch.optim import Optimizer

    return isinstance(part, Optimizer)


def _has_sharded_parameters(model: Any) -> bool:
    return any(is_sharded(parameter) for parameter in model.parameters())


def _sharded_model_of(part: Any, parts: Mapping[str, Any]) -> Any:
    """The model whose sharded parameters an optimizer updates. None for other parts."""
    if not _is_optimizer(part):
        return None
    own = {id(parameter) for group in part.param_groups for parameter in group["params"]}
    for model in map(unwrap_model, filter(_is_module, parts.values())):
        if any(id(parameter) in own and is_sharded(parameter) for parameter in model.parameters()):
            return model
    return None
