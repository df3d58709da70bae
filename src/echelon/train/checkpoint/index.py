"""The index at the end of a rank's file: reads it and checks it against the file before any byte is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.codec import decode
from echelon.train.checkpoint.capture import INDEX_VERSION
from echelon.train.checkpoint.file_format import Manifest, ShardFile, shard_file_name
from echelon.train.checkpoint.layout import TensorSpec, numel
from echelon.train.checkpoint.tree import rebuild_state, tensor_paths
from echelon.train.checkpoint.verify import DamagedCheckpoint, read_fully
from echelon.untrusted import open_regular, parse_json

MAX_INDEX_BYTES = 1 << 30
INDEX_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError, MemoryError)
"""Exceptions that a damaged index can cause in the code that uses it. RuntimeError includes RecursionError and torch's
own errors."""


def read_index(path: Path, fd: int, file: ShardFile) -> dict[str, Any]:
    """The decoded index. Raises DamagedCheckpoint and OSError."""
    if file.size - file.index > MAX_INDEX_BYTES:
        raise DamagedCheckpoint(path, f"has an index of {file.size - file.index} bytes")
    data = bytearray(file.size - file.index)
    read_fully(path, fd, file.index, memoryview(data))
    try:
        index = parse_json(bytes(data), numbers=False)
        version = index["version"]
    except INDEX_ERRORS as error:
        raise DamagedCheckpoint(path, f"is damaged: its index is not JSON: {error}") from error
    if version != INDEX_VERSION:
        raise DamagedCheckpoint(path, f"has an index of version {str(version)[:20]}")
    return dict(index)


def check_index(folder: Path, manifest: Manifest, rank: int) -> None:
    """Reads and checks the index of one rank's file. Raises DamagedCheckpoint."""
    file = manifest.files[rank]
    path = folder / file.name
    try:
        with open(open_regular(path), "rb", buffering=0) as source:  # noqa: PTH123  opens a file descriptor
            index = read_index(path, source.fileno(), file)
    except OSError as error:
        raise DamagedCheckpoint(path, f"cannot be read: {error.strerror}") from error
    try:
        check_index_content(index, file, total=manifest.files[-1].end)
    except INDEX_ERRORS as error:
        raise DamagedCheckpoint(path, f"is damaged: its index is inconsistent: {error}") from error


def check_index_content(index: Mapping[str, Any], file: ShardFile, *, total: int) -> None:
    """Checks the index against its file and the `total` common bytes of all files. Raises one of NONSENSE."""
    specs = _decode_specs(index["tensors"])
    if sum(spec.size for spec in specs if not spec.in_pieces) != total:
        raise ValueError(f"its tensors do not add up to {total} bytes")
    share = file.end - file.begin
    for piece in index["pieces"]:
        _check_piece(piece, specs, least=share, most=file.index)
    own = _decode_specs(index["own_tensors"])
    if sum(spec.size for spec in own) > file.index - share:
        raise ValueError("this rank's own tensors are larger than its file")
    _check_tree(index["own"], len(own))
    if file.name == shard_file_name(0):
        _check_tree(index["common"], len(specs))


def _decode_specs(data: Sequence[Any]) -> list[TensorSpec]:
    specs = [decode(TensorSpec, item) for item in data]
    for spec in specs:
        _check_shape(spec.shape)
    return specs


def _check_shape(shape: Sequence[int]) -> None:
    if any(type(length) is not int or length < 0 for length in shape) or len(shape) > 64:
        raise ValueError(f"a tensor has the shape {str(list(shape))[:60]}")


def _check_piece(piece: Mapping[str, Any], specs: Sequence[TensorSpec], *, least: int, most: int) -> None:
    number, starts, shape, offset = piece["tensor"], piece["starts"], piece["shape"], piece["offset"]
    if type(number) is not int or not 0 <= number < len(specs):
        raise ValueError(f"a piece belongs to tensor {str(number)[:20]}")
    whole = specs[number]
    _check_shape(shape)
    _check_shape(starts)
    inside = len(starts) == len(shape) == len(whole.shape) and all(
        start + length <= end for start, length, end in zip(starts, shape, whole.shape, strict=True)
    )
    size = TensorSpec(dtype=whole.dtype, shape=tuple(shape)).size if numel(tuple(shape)) else 0
    if not inside or type(offset) is not int or not least <= offset <= most - size:
        raise ValueError(f"a piece of tensor {number} is outside the tensor or the file")


def _check_tree(tree: Any, count: int) -> None:
    """Builds the state once, with empty tensors. Raises one of NONSENSE if that fails."""
    import torch

    nothing = torch.empty(0)

    def tensor_at(number: int) -> Any:
        if type(number) is not int or not 0 <= number < count:
            raise ValueError(f"it has no tensor {str(number)[:20]}")
        return nothing

    state = rebuild_state(tree, tensor_at)
    if not isinstance(state, dict):
        raise ValueError("it holds no dict of parts")
    for number, _ in tensor_paths(tree):
        tensor_at(number)
