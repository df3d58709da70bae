"""Tensors out of a checkpoint's files, whole or in part, for any number of ranks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echelon.codec import decode
from echelon.runtime.checkpoint.manifest import Manifest
from echelon.runtime.checkpoint.regions import Region, common, whole
from echelon.runtime.checkpoint.sharing import offsets
from echelon.runtime.checkpoint.snapshot import INDEX_VERSION
from echelon.runtime.checkpoint.tensors import Spec, dtype_named, numel, spec_of, view_of
from echelon.runtime.checkpoint.tree import Path as TreePath
from echelon.runtime.checkpoint.tree import is_sharded, paths_of_tensors, rebuilt
from echelon.runtime.checkpoint.verify import Damaged, read_fully

Target = Callable[[TreePath], Any]
"""The tensor that stands at a path in the state to be loaded into, or None. It is read into where it fits."""


@dataclass
class Reader:
    """Of one checkpoint that has been verified. Raises Damaged all the same where files change under it."""

    folder: Path
    manifest: Manifest
    _fds: dict[int, int] = field(default_factory=dict)
    _indices: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, manifest: Manifest) -> Iterator[Reader]:
        reader = cls(folder, manifest)
        try:
            yield reader
        finally:
            for fd in reader._fds.values():
                os.close(fd)

    @property
    def size(self) -> int:
        """Of the world that saved it."""
        return len(self.manifest.files)

    @property
    def names(self) -> list[str]:
        """Of the parts of the common state."""
        with self._damage("its index does not make sense"):
            return [str(key) for key, _ in self._index(0)["common"]["dict"]]

    def common(self, target: Target | None = None) -> Any:
        """What all ranks had alike; of a tensor that the target has sharded, only this rank's part is read."""
        index = self._index(0)
        specs = [decode(Spec, spec) for spec in index["tensors"]]
        offered = {} if target is None else _targets(index["common"], target)
        begins = _begins(specs)
        made: dict[int, Any] = {}

        def tensor_at(number: int) -> Any:
            if number not in made:
                made[number] = self._tensor(number, specs[number], begins[number], offered.get(number))
            return made[number]

        with self._damage("its index does not make sense"):
            return rebuilt(index["common"], tensor_at)

    def own(self, rank: int) -> Any:
        """What one rank had for itself."""
        index, file = self._index(rank), self.manifest.files[rank]
        specs = [decode(Spec, spec) for spec in index["own_tensors"]]
        end = file.index
        places = [end - sum(spec.size for spec in specs[number:]) for number in range(len(specs))]
        with self._damage("its index does not make sense"):
            return rebuilt(index["own"], lambda number: self._from_file(rank, specs[number], places[number]))

    def _index(self, rank: int) -> dict[str, Any]:
        if rank not in self._indices:
            file = self.manifest.files[rank]
            data = bytearray(file.size - file.index)
            self._read(rank, file.index, memoryview(data))
            with self._damage("its index is not JSON"):
                index: dict[str, Any] = json.loads(data)
            if index.get("version") != INDEX_VERSION:
                raise Damaged(self.folder / file.name, f"has an index of version {index.get('version')}")
            self._indices[rank] = index
        return self._indices[rank]

    @contextlib.contextmanager
    def _damage(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise Damaged(self.folder / self.manifest.files[0].name, f"{what}: {error}") from error

    def _tensor(self, number: int, spec: Spec, begin: int, target: Any) -> Any:
        if target is not None and is_sharded(target):
            return self._distributed(number, spec, begin, target)
        if spec.in_pieces:
            return self._assembled(number, spec, whole(spec.shape))
        tensor = target if target is not None and spec_of(target) == spec else _empty(spec.dtype, spec.shape)
        self._read_common(begin, _bytes_of(tensor))
        return tensor

    def _distributed(self, number: int, spec: Spec, begin: int, target: Any) -> Any:
        """A sharded tensor like the target, of which this rank reads its own part."""
        from torch.distributed.tensor import DTensor

        from echelon.runtime.checkpoint.tensors import region_of

        if tuple(target.shape) != spec.shape:
            raise ValueError(f"a tensor has shape {spec.shape}, and is wanted with {tuple(target.shape)}")
        region, _ = region_of(target)
        if spec.in_pieces:
            local = self._assembled(number, spec, region)
        else:
            local = self._tensor(number, spec, begin, None)[region.within(whole(spec.shape))].contiguous()
        return DTensor.from_local(
            local.to(target.device), target.device_mesh, target.placements, run_check=False, shape=target.shape,
            stride=target.stride(),
        )  # fmt: skip

    def _assembled(self, number: int, spec: Spec, region: Region) -> Any:
        """A box of a tensor, out of the pieces of however many ranks."""
        result = _empty(spec.dtype, region.shape)
        missing = numel(region.shape)
        for rank, piece in self._pieces(number):
            there = Region(tuple(piece["starts"]), tuple(piece["shape"]))
            both = common(there, region)
            if both is not None:
                source = self._from_file(rank, Spec(dtype=spec.dtype, shape=there.shape), piece["offset"])
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

    def _from_file(self, rank: int, spec: Spec, offset: int) -> Any:
        tensor = _empty(spec.dtype, spec.shape)
        self._read(rank, offset, _bytes_of(tensor))
        return tensor

    def _read_common(self, begin: int, target: memoryview) -> None:
        """From as many files as it is spread over."""
        end = begin + len(target)
        for rank, file in enumerate(self.manifest.files):
            low, high = max(begin, file.begin), min(end, file.end)
            if low < high:
                self._read(rank, low - file.begin, target[low - begin : high - begin])

    def _read(self, rank: int, offset: int, target: memoryview) -> None:
        path = self.folder / self.manifest.files[rank].name
        try:
            if rank not in self._fds:
                self._fds[rank] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            read_fully(path, self._fds[rank], offset, target)
        except OSError as error:
            raise Damaged(path, f"cannot be read: {error.strerror}") from error


def _targets(tree: Any, target: Target) -> dict[int, Any]:
    found = {number: target(path) for number, path in paths_of_tensors(tree)}
    return {number: tensor for number, tensor in found.items() if tensor is not None}


def _begins(specs: list[Spec]) -> list[int]:
    """Where each tensor stands among the common bytes; those in pieces take no room there."""
    return offsets([0 if spec.in_pieces else spec.size for spec in specs])


def _empty(dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.empty(shape, dtype=dtype_named(dtype))


def _bytes_of(tensor: Any) -> memoryview:
    import torch

    return view_of(tensor.view(-1).view(torch.uint8))
