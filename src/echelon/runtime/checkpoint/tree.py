"""State as JSON and a list of tensors, and back: a closed set of types, so that loading never runs anybody's code."""

from __future__ import annotations

import base64
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from echelon.errors import ConfigError

Path = tuple[object, ...]


class Flattened:
    """One state: `tree` is JSON, and refers to `tensors` by their place. A tensor that occurs twice is kept once."""

    def __init__(self, state: Any, root: str = "") -> None:
        self.tensors: list[Any] = []
        self.paths: list[Path] = []
        self._places: dict[tuple[object, ...], int] = {}
        self.tree = self._encoded(state, (root,) if root else ())

    def _encoded(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind in (list, tuple, set, frozenset):
            return {kind.__name__: [self._encoded(item, (*path, place)) for place, item in enumerate(value)]}
        if kind in _MAPPINGS:
            return self._mapping(_MAPPINGS[kind], value, path)
        if kind in (bytes, bytearray):
            return {kind.__name__: base64.b64encode(value).decode()}
        if kind is complex:
            return {"complex": repr(value)}
        return self._of_torch(value, path)

    def _mapping(self, tag: str, value: Any, path: Path) -> Any:
        pairs = [[self._encoded(key, path), self._encoded(item, (*path, key))] for key, item in value.items()]
        metadata = getattr(value, "_metadata", None)  # the versions of a model's modules
        return {tag: pairs} if metadata is None else {tag: pairs, "metadata": self._encoded(metadata, path)}

    def _of_torch(self, value: Any, path: Path) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return {"tensor": self._place(_storable(value, path), path)}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, (torch.dtype, torch.device)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._of_numpy(numpy, value, path)
        raise _refused(path, f"is of type {type(value).__module__}.{type(value).__qualname__}")

    def _of_numpy(self, numpy: Any, value: Any, path: Path) -> Any:
        import torch

        array = numpy.ascontiguousarray(value).reshape(numpy.shape(value))
        if array.dtype.kind not in "biufc":
            raise _refused(path, f"is a numpy array of {array.dtype}")
        tensor = torch.from_numpy(array.copy())
        return {"array" if isinstance(value, numpy.ndarray) else "scalar": self._place(tensor, path)}

    def _place(self, tensor: Any, path: Path) -> int:
        identity = _identity(tensor)
        if identity not in self._places:
            self._places[identity] = len(self.tensors)
            self.tensors.append(tensor)
            self.paths.append(path)
        return self._places[identity]


_MAPPINGS: dict[Any, str] = {dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter"}


def _storable(tensor: Any, path: Path) -> Any:
    import torch

    tensor = tensor.detach()
    if is_sharded(tensor):
        return tensor
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise _refused(path, f"is a tensor of layout {tensor.layout} on {tensor.device}")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise _refused(path, f"is a tensor of type {type(tensor).__qualname__}")
    return tensor


def is_sharded(tensor: Any) -> bool:
    """A DTensor: of FSDP2, or of tensor parallelism."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _identity(tensor: Any) -> tuple[object, ...]:
    local = tensor.to_local() if is_sharded(tensor) else tensor
    if local.numel() == 0:
        return (id(tensor),)  # all empty tensors have one address
    place = (local.data_ptr(), str(local.device), local.dtype, tuple(local.shape), local.stride())
    return (*place, tuple(tensor.shape))


def _refused(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{spelled(path)} {what}, which no checkpoint can hold",
        origin="the state_dict of what echelon.Checkpoint was given",
        why="a checkpoint holds tensors, numbers, text, bytes, lists, tuples, sets and dicts; never a pickle",
        hint="leave it out of state_dict, or turn it into one of these there",
    )


def spelled(path: Path) -> str:
    first, rest = str(path[0]) if path else "the state", path[1:]
    return first + "".join(f"[{part!r}]" for part in rest)


def rebuilt(tree: Any, tensor_at: Callable[[int], Any]) -> Any:
    """The state that was flattened; raises ValueError for a tree that `Flattened` did not make."""
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if not isinstance(tree, dict) or not tree:
        raise ValueError(f"{str(tree)[:60]!r} is no state")
    tag, data = next(iter(tree.items()))
    if tag in _KINDS_OF_MAPPING:
        return _rebuilt_mapping(_KINDS_OF_MAPPING[tag], data, tree.get("metadata"), tensor_at)
    if tag in _KINDS_OF_SEQUENCE:
        return _KINDS_OF_SEQUENCE[tag]([rebuilt(item, tensor_at) for item in data])
    if tag in _LEAVES:
        return _LEAVES[tag](data, tensor_at)
    raise ValueError(f"a state has no {str(tag)[:60]!r}")


def _rebuilt_mapping(kind: Any, pairs: Any, metadata: Any, tensor_at: Callable[[int], Any]) -> Any:
    made = kind()
    for key, value in pairs:
        made[rebuilt(key, tensor_at)] = rebuilt(value, tensor_at)
    if metadata is not None:
        made._metadata = rebuilt(metadata, tensor_at)
    return made


def _dtype(name: str) -> Any:
    import torch

    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}")
    return dtype


def _device(name: str) -> Any:
    import torch

    return torch.device(name)


def _size(numbers: list[int]) -> Any:
    import torch

    return torch.Size(numbers)


_KINDS_OF_MAPPING: dict[str, Any] = {tag: kind for kind, tag in _MAPPINGS.items()}
_KINDS_OF_SEQUENCE: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_LEAVES: dict[str, Callable[[Any, Callable[[int], Any]], Any]] = {
    "float": lambda text, _: float(text),
    "complex": lambda text, _: complex(text),
    "bytes": lambda text, _: base64.b64decode(text),
    "bytearray": lambda text, _: bytearray(base64.b64decode(text)),
    "size": lambda numbers, _: _size(numbers),
    "dtype": lambda name, _: _dtype(name),
    "device": lambda name, _: _device(name),
    "tensor": lambda place, tensor_at: tensor_at(place),
    "array": lambda place, tensor_at: tensor_at(place).numpy(),
    "scalar": lambda place, tensor_at: tensor_at(place).numpy()[()],
}


def paths_of_tensors(tree: Any, path: Path = ()) -> Iterator[tuple[int, Path]]:
    """Every place of every tensor, as `Flattened` spells them; for those who load only some."""
    if not isinstance(tree, dict):
        return
    tag, data = next(iter(tree.items()))
    if tag == "tensor":
        yield data, path
    elif tag in _KINDS_OF_MAPPING:
        for key, value in data:
            yield from paths_of_tensors(value, (*path, rebuilt(key, _no_tensor)))
    elif tag in _KINDS_OF_SEQUENCE:
        for place, item in enumerate(data):
            yield from paths_of_tensors(item, (*path, place))


def _no_tensor(_: int) -> Any:
    raise ValueError("a tensor cannot be a key")
