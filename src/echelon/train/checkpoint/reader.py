"""Reading of a checkpoint's tensors, completely or in part, on any number of ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echelon.codec import decode
from echelon.train.checkpoint.file_format import Manifest
from echelon.train.checkpoint.index import INDEX_ERRORS, check_index, read_index
from echelon.train.checkpoint.layout import (
    Region,
    TensorSpec,
    byte_offsets,
    byte_view,
    dtype_from_name,
    numel,
    region_intersection,
    tensor_spec,
    whole_region,
)
from echelon.train.checkpoint.tree import StatePath as TreePath
from echelon.train.checkpoint.tree import is_sharded, rebuild_state, reject_tensor, tensor_paths
from echelon.train.checkpoint.verify import DamagedCheckpoint, read_fully
from echelon.untrusted import open_regular

TargetLookup = Callable[[TreePath], Any]
"""Returns the present tensor at a path of the state, or None. Data is read into it if its dtype and shape fit."""


@dataclass
class CheckpointReader:
    """Reads one verified checkpoint. Raises DamagedCheckpoint if its files have changed since."""

    folder: Path
    manifest: Manifest
    _fds: dict[int, int] = field(default_factory=dict)
    _indices: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, manifest: Manifest) -> Iterator[CheckpointReader]:
        reader = cls(folder, manifest)
        try:
            yield reader
        finally:
            for fd in reader._fds.values():
                os.close(fd)

    @property
    def size(self) -> int:
        """The number of ranks that saved it."""
        return len(self.manifest.files)

    @property
    def names(self) -> list[str]:
        """The names of the parts of the common state."""
        with self._translate_index_errors(0):
            return [str(key) for key, _ in self._index(0)["common"]["dict"]]

    def without_tensors(self, name: str) -> Any:
        """One part of the common state that has no tensors. The other parts are not read."""
        with self._translate_index_errors(0):
            return rebuild_state(dict(self._index(0)["common"]["dict"])[name], reject_tensor)

    def common(self, target: TargetLookup | None = None) -> Any:
        """The common state. If a target is a sharded tensor, only this rank's part of it is read."""
        with self._translate_index_errors(0):
            index = self._index(0)
            specs = [decode(TensorSpec, spec) for spec in index["tensors"]]
            offered = {} if target is None else _targets_by_number(index["common"], target)
            begins = _common_offsets(specs)
            made: dict[int, Any] = {}

            def tensor_at(number: int) -> Any:
                if number not in made:
                    made[number] = self._read_tensor(number, specs[number], begins[number], offered.get(number))
                return made[number]

            return rebuild_state(index["common"], tensor_at)

    def own(self, rank: int) -> Any:
        """The own state of one rank."""
        with self._translate_index_errors(rank):
            index, end = self._index(rank), self.manifest.files[rank].index
            specs = [decode(TensorSpec, spec) for spec in index["own_tensors"]]
            places = [end - sum(spec.size for spec in specs[number:]) for number in range(len(specs))]
            return rebuild_state(index["own"], lambda number: self._read_piece(rank, specs[number], places[number]))

    def _index(self, rank: int) -> dict[str, Any]:
        """The index of a rank's file. It is read and checked only once."""
        if rank not in self._indices:
            check_index(self.folder, self.manifest, rank)
            file = self.manifest.files[rank]
            self._indices[rank] = read_index(self.folder / file.name, self._open_file(rank), file)
        return self._indices[rank]

    @contextlib.contextmanager
    def _translate_index_errors(self, rank: int) -> Iterator[None]:
        try:
            yield
        except INDEX_ERRORS as error:
            path = self.folder / self.manifest.files[rank].name
            raise DamagedCheckpoint(path, f"is damaged: its index is inconsistent: {error}") from error

    def _read_tensor(self, number: int, spec: TensorSpec, begin: int, target: Any) -> Any:
        if target is not None and is_sharded(target):
            return self._read_sharded(number, spec, begin, target)
        if spec.in_pieces:
            return self._assemble(number, spec, whole_region(spec.shape))
        tensor = target if target is not None and tensor_spec(target) == spec else _empty_tensor(spec.dtype, spec.shape)
        self._read_common(begin, _tensor_bytes(tensor))
        return tensor

    def _read_sharded(self, number: int, spec: TensorSpec, begin: int, target: Any) -> Any:
        """A sharded tensor like the target. Only this rank's part is read."""
        from torch.distributed.tensor import DTensor

        from echelon.train.checkpoint.layout import local_region

        if tuple(target.shape) != spec.shape:
            raise ValueError(f"a tensor was saved with shape {spec.shape}, but now has shape {tuple(target.shape)}")
        region, _ = local_region(target)
        if spec.in_pieces:
            local = self._assemble(number, spec, region)
        else:
            local = self._read_tensor(number, spec, begin, None)[region.within(whole_region(spec.shape))].contiguous()
        return DTensor.from_local(
            local.to(target.device),
            target.device_mesh,
            target.placements,
            run_check=False,
            shape=target.shape,
            stride=target.stride(),
        )

    def _assemble(self, number: int, spec: TensorSpec, region: Region) -> Any:
        """A region of a tensor, assembled from the pieces of all ranks. Raises ValueError if elements are missing."""
        result = _empty_tensor(spec.dtype, region.shape)
        missing = numel(region.shape)
        for rank, piece in self._pieces(number):
            there = Region(tuple(piece["starts"]), tuple(piece["shape"]))
            both = region_intersection(there, region)
            if both is not None:
                source = self._read_piece(rank, TensorSpec(dtype=spec.dtype, shape=there.shape), piece["offset"])
                result[both.within(region)] = source[both.within(there)]
                missing -= numel(both.shape)
        if missing:
            raise ValueError(f"{missing} elements of tensor {number} were never saved")
        return result

    def _pieces(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for rank in range(self.size):
            for piece in self._index(rank)["pieces"]:
                if piece["tensor"] == number:
                    yield rank, piece

    def _read_piece(self, rank: int, spec: TensorSpec, offset: int) -> Any:
        tensor = _empty_tensor(spec.dtype, spec.shape)
        self._read_bytes(rank, offset, _tensor_bytes(tensor))
        return tensor

    def _read_common(self, begin: int, target: memoryview) -> None:
        """Fills the target from offset `begin` of the common bytes, which may extend over several files."""
        end = begin + len(target)
        for rank, file in enumerate(self.manifest.files):
            low, high = max(begin, file.begin), min(end, file.end)
            if low < high:
                self._read_bytes(rank, low - file.begin, target[low - begin : high - begin])

    def _read_bytes(self, rank: int, offset: int, target: memoryview) -> None:
        path = self.folder / self.manifest.files[rank].name
        try:
            read_fully(path, self._open_file(rank), offset, target)
        except OSError as error:
            raise DamagedCheckpoint(path, f"cannot be read: {error.strerror}") from error

    def _open_file(self, rank: int) -> int:
        if rank not in self._fds:
            path = self.folder / self.manifest.files[rank].name
            try:
                self._fds[rank] = open_regular(path)
            except OSError as error:
                raise DamagedCheckpoint(path, f"cannot be read: {error.strerror}") from error
        return self._fds[rank]


def _targets_by_number(tree: Any, target: TargetLookup) -> dict[int, Any]:
    found = {number: target(path) for number, path in tensor_paths(tree)}
    return {number: tensor for number, tensor in found.items() if tensor is not None}


def _common_offsets(specs: list[TensorSpec]) -> list[int]:
    """The offset of each tensor in the common bytes. Tensors in pieces take no space there."""
    return byte_offsets([0 if spec.in_pieces else spec.size for spec in specs])


def _empty_tensor(dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.empty(shape, dtype=dtype_from_name(dtype))


def _tensor_bytes(tensor: Any) -> memoryview:
    import torch

    return byte_view(tensor.view(-1).view(torch.uint8))
