"""How each thing a script trains with gives its state away and takes it back: models in any wrapping, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.tree import Flattened, Path, is_sharded

RESERVED = "echelon"


def check_parts(parts: Mapping[str, Any], origin: str) -> None:
    """Raises ConfigError for what has no state."""
    for name, part in parts.items():
        absent = [method for method in ("state_dict", "load_state_dict") if not callable(getattr(part, method, None))]
        if name == RESERVED or absent:
            why = "that name is taken" if name == RESERVED else f"it has no {' and no '.join(absent)}"
            raise ConfigError(f"{name!r} cannot be saved: it is a {type(part).__qualname__}", origin=origin, why=why)


def states_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _state_of(part, parts) for name, part in parts.items()}


def load_states(parts: Mapping[str, Any], states: Mapping[str, Any], *, origin: str) -> None:
    """Models first: an optimizer of sharded tensors looks at its model. Raises ConfigError where they do not fit."""
    for name in sorted(parts, key=lambda name: not _is_module(parts[name])):
        try:
            _load(parts[name], states[name], parts)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"what was saved of {name!r} does not fit the {type(parts[name]).__qualname__} that is there now",
                origin=origin,
                why=f"{type(error).__name__}: {error}",
                hint="build the same model and optimizer as the run that saved it, or give another folder",
            ) from error


def check_names(parts: Mapping[str, Any], saved: Sequence[str], *, origin: str) -> None:
    """Before anything is applied. What was saved and is no longer wanted is left alone."""
    absent = [name for name in parts if name not in saved]
    if absent:
        there = ", ".join(name for name in saved if name != RESERVED)
        raise ConfigError(
            f"the checkpoint has no {absent[0]!r}",
            origin=origin,
            why=f"it was saved with {there}",
            hint="give Checkpoint the same names as the run that saved it, or another folder",
        )


def targets_in(parts: Mapping[str, Any]) -> Callable[[Path], Any]:
    """The tensor that stands at a path now, where it can be read into: sharded, or whole in host memory.

    Of models and optimizers only: they have no tensors but those that loading replaces.
    """
    known = {name: part for name, part in parts.items() if _is_module(part) or _is_optimizer(part)}
    present = Flattened({name: _state_of(part, parts) for name, part in known.items()})
    found = {path: tensor for tensor, path in zip(present.tensors, present.paths, strict=True) if _is_open(tensor)}
    return found.get


def _is_open(tensor: Any) -> bool:
    return is_sharded(tensor) or (tensor.device.type == "cpu" and tensor.is_contiguous())


def alike_in(parts: Mapping[str, Any]) -> Callable[[Path, Any], bool]:
    """Which tensors are the same on all ranks: parameters, and what optimizers make of them. Buffers need not be."""
    optimizers = {name for name, part in parts.items() if _is_optimizer(part)}
    models = [unwrapped(part) for part in parts.values() if _is_module(part)]
    addresses = {parameter.data_ptr() for model in models for parameter in model.parameters()}
    return lambda path, tensor: path[0] in optimizers or tensor.data_ptr() in addresses


def _state_of(part: Any, parts: Mapping[str, Any]) -> Any:
    if _is_module(part):
        model = unwrapped(part)
        return _sharded_state(model) if _has_sharded(model) else model.state_dict()
    model = _sharded_model_of(part, parts)
    if model is not None:
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        return get_optimizer_state_dict(model, part)
    return part.state_dict()


def _sharded_state(model: Any) -> Any:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    return get_model_state_dict(model)


def _load(part: Any, state: Any, parts: Mapping[str, Any]) -> None:
    if _is_module(part):
        _load_model(unwrapped(part), state)
        return
    model = _sharded_model_of(part, parts)
    if model is None:
        part.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

    set_optimizer_state_dict(model, part, state)


def _load_model(model: Any, state: Any) -> None:
    if not _has_sharded(model):
        model.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import set_model_state_dict

    set_model_state_dict(model, state)


def unwrapped(model: Any) -> Any:
    """The user's own module, inside DistributedDataParallel and torch.compile."""
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


def _has_sharded(model: Any) -> bool:
    return any(is_sharded(parameter) for parameter in model.parameters())


def _sharded_model_of(part: Any, parts: Mapping[str, Any]) -> Any:
    """The model whose sharded tensors an optimizer works on, if it is one and does."""
    if not _is_optimizer(part):
        return None
    own = {id(parameter) for group in part.param_groups for parameter in group["params"]}
    for model in map(unwrapped, filter(_is_module, parts.values())):
        if any(id(parameter) in own and is_sharded(parameter) for parameter in model.parameters()):
            return model
    return None
