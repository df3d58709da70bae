"""Conversion of a state to JSON and a list of tensors, and back. The set of types is fixed, so loading runs no code."""

from __future__ import annotations

import base64
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from echelon.errors import ConfigError

StatePath = tuple[object, ...]


class FlatState:
    """A state as JSON. `tree` refers to `tensors` by their index. A tensor that occurs twice is stored once.

    Raises ConfigError for a value of any other type.
    """

    def __init__(self, state: Any, root: str = "") -> None:
        self.tensors: list[Any] = []
        self.paths: list[StatePath] = []
        self._places: dict[tuple[object, ...], int] = {}
        self.tree = self._encode(state, (root,) if root else ())

    def _encode(self, value: Any, path: StatePath) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind in (list, tuple, set, frozenset):
            return {kind.__name__: [self._encode(item, (*path, place)) for place, item in enumerate(value)]}
        if kind in _MAPPING_TAGS:
            return self._encode_mapping(_MAPPING_TAGS[kind], value, path)
        if kind in (bytes, bytearray):
            return {kind.__name__: base64.b64encode(value).decode()}
        if kind is complex:
            return {"complex": repr(value)}
        return self._encode_torch(value, path)

    def _encode_mapping(self, tag: str, value: Any, path: StatePath) -> Any:
        pairs = [[self._encode(key, path), self._encode(item, (*path, key))] for key, item in value.items()]
        metadata = getattr(value, "_metadata", None)  # the versions of a model's modules
        return {tag: pairs} if metadata is None else {tag: pairs, "metadata": self._encode(metadata, path)}

    def _encode_torch(self, value: Any, path: StatePath) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return {"tensor": self._place(_storable_tensor(value, path), path)}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, (torch.dtype, torch.device)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._encode_numpy(numpy, value, path)
        raise _unsupported_error(path, f"is of type {type(value).__module__}.{type(value).__qualname__}")

    def _encode_numpy(self, numpy: Any, value: Any, path: StatePath) -> Any:
        import torch

        array = numpy.ascontiguousarray(value).reshape(numpy.shape(value))
        if array.dtype.kind not in "biufc":
            raise _unsupported_error(path, f"is a numpy array of {array.dtype}")
        tensor = torch.from_numpy(array.copy())
        return {"array" if isinstance(value, numpy.ndarray) else "scalar": self._place(tensor, path)}

    def _place(self, tensor: Any, path: StatePath) -> int:
        identity = _tensor_identity(tensor)
        if identity not in self._places:
            self._places[identity] = len(self.tensors)
            self.tensors.append(tensor)
            self.paths.append(path)
        return self._places[identity]


_MAPPING_TAGS: dict[Any, str] = {dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter"}


def _storable_tensor(tensor: Any, path: StatePath) -> Any:
    import torch

    tensor = tensor.detach()
    if is_sharded(tensor):
        return tensor
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise _unsupported_error(path, f"is a tensor of layout {tensor.layout} on {tensor.device}")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise _unsupported_error(path, f"is a tensor of type {type(tensor).__qualname__}")
    return tensor


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor, as in FSDP2 and tensor parallelism."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _tensor_identity(tensor: Any) -> tuple[object, ...]:
    local = tensor.to_local() if is_sharded(tensor) else tensor
    if local.numel() == 0:
        return (id(tensor),)  # all empty tensors have one address
    place = (local.data_ptr(), str(local.device), local.dtype, tuple(local.shape), local.stride())
    return (*place, tuple(tensor.shape))


def _unsupported_error(path: StatePath, what: str) -> ConfigError:
    return ConfigError(
        f"{format_path(path)} {what}, which a checkpoint cannot hold",
        origin="the state_dict of a part of echelon.Checkpoint",
        why="a checkpoint holds tensors, numbers, text, bytes, lists, tuples, sets and dicts; never a pickle",
        hint="leave it out of state_dict, or convert it to one of these types there",
    )


def format_path(path: StatePath) -> str:
    first, rest = str(path[0]) if path else "the state", path[1:]
    return first + "".join(f"[{part!r}]" for part in rest)


def rebuild_state(tree: Any, tensor_at: Callable[[int], Any]) -> Any:
    """The original state. Raises ValueError for an invalid tree."""
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if not isinstance(tree, dict) or not tree:
        raise ValueError(f"{str(tree)[:60]!r} is not a state")
    tag, data = next(iter(tree.items()))
    if tag in _MAPPING_TYPES:
        return _rebuild_mapping(_MAPPING_TYPES[tag], data, tree.get("metadata"), tensor_at)
    if tag in _SEQUENCE_TYPES:
        return _SEQUENCE_TYPES[tag]([rebuild_state(item, tensor_at) for item in data])
    if tag in _LEAF_DECODERS:
        return _LEAF_DECODERS[tag](data, tensor_at)
    raise ValueError(f"unknown type {str(tag)[:60]!r} in a state")


def _rebuild_mapping(kind: Any, pairs: Any, metadata: Any, tensor_at: Callable[[int], Any]) -> Any:
    made = kind()
    for key, value in pairs:
        made[rebuild_state(key, tensor_at)] = rebuild_state(value, tensor_at)
    if metadata is not None:
        made._metadata = rebuild_state(metadata, tensor_at)
    return made


def _dtype_from_name(name: str) -> Any:
    import torch

    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}")
    return dtype


def _device_from_name(name: str) -> Any:
    import torch

    return torch.device(name)


def _torch_size(numbers: list[int]) -> Any:
    import torch

    return torch.Size(numbers)


_MAPPING_TYPES: dict[str, Any] = {tag: kind for kind, tag in _MAPPING_TAGS.items()}
_SEQUENCE_TYPES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_LEAF_DECODERS: dict[str, Callable[[Any, Callable[[int], Any]], Any]] = {
    "float": lambda text, _: float(text),
    "complex": lambda text, _: complex(text),
    "bytes": lambda text, _: base64.b64decode(text),
    "bytearray": lambda text, _: bytearray(base64.b64decode(text)),
    "size": lambda numbers, _: _torch_size(numbers),
    "dtype": lambda name, _: _dtype_from_name(name),
    "device": lambda name, _: _device_from_name(name),
    "tensor": lambda place, tensor_at: tensor_at(place),
    "array": lambda place, tensor_at: tensor_at(place).numpy(),
    "scalar": lambda place, tensor_at: tensor_at(place).numpy()[()],
}


def tensor_paths(tree: Any, path: StatePath = ()) -> Iterator[tuple[int, StatePath]]:
    """The index and path of every occurrence of every tensor, for loading only some of them."""
    if not isinstance(tree, dict):
        return
    tag, data = next(iter(tree.items()))
    if tag == "tensor":
        yield data, path
    elif tag in _MAPPING_TYPES:
        for key, value in data:
            yield from tensor_paths(value, (*path, rebuild_state(key, reject_tensor)))
    elif tag in _SEQUENCE_TYPES:
        for place, item in enumerate(data):
            yield from tensor_paths(item, (*path, place))


def reject_tensor(_: int) -> Any:
    raise ValueError("unexpected tensor")
