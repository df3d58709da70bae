"""Copies a rank's share of the state to host memory; training waits only for this."""

from __future__ import annotations

import enum
import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from echelon.codec import encode
from echelon.record import record
from echelon.train.checkpoint.layout import (
    allocate_host_memory,
    as_byte_tensor,
    byte_offsets,
    byte_view,
    local_region,
    share_bounds,
    share_overlaps,
    tensor_spec,
    whole_region,
)
from echelon.train.checkpoint.tree import FlatState, StatePath, is_sharded

INDEX_VERSION = 1


@record
class Capture:
    """The data that this rank writes. It does not change when training continues."""

    data: memoryview
    index: dict[str, Any]
    begin: int
    end: int

    @property
    def digest(self) -> int:
        """A CRC of the tensor list. If it differs between ranks, their shares do not fit together."""
        return zlib.crc32(json.dumps(self.index["tensors"]).encode())


class HostBuffer:
    """Host memory that is reused by all saves: the first write to new memory takes ten times as long."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._warming: threading.Thread | None = None

    @property
    def is_allocated(self) -> bool:
        return self._memory is not None

    def get(self, count: int, *, pinned: bool) -> Any:
        if self._warming is not None:
            self._warming.join()
            self._warming = None
        if self._memory is None or self._memory.numel() < count:
            self._memory = None  # frees it before the next allocation, so that there are never two
            self._memory = allocate_host_memory(count, pinned=pinned)
        return self._memory[:count]

    def allocate(self, plan: CapturePlan) -> None:
        """Allocates the memory before the first save, and writes to it in a thread while training continues."""
        memory = self.get(plan.size, pinned=plan.pinned)
        self._warming = threading.Thread(target=memory.zero_, name="echelon-host-memory", daemon=True)
        self._warming.start()


@dataclass(frozen=True)
class CapturePlan:
    """The layout of a rank's file: its share of the replicated tensors, its pieces of sharded ones, its own tensors."""

    alike: list[Any]
    places: list[int]
    begin: int
    end: int
    pieces: list[tuple[dict[str, Any], Any]]
    own: list[Any]
    index: dict[str, Any]

    @property
    def size(self) -> int:
        return self.end - self.begin + sum(map(_tensor_bytes, [*(tensor for _, tensor in self.pieces), *self.own]))

    @property
    def pinned(self) -> bool:
        return any(tensor.is_cuda for tensor in (*self.alike, *(piece for _, piece in self.pieces)))


def _tensor_bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def plan_capture(common: FlatState, own: FlatState, rank: int, size: int, *, alike: IsReplicated) -> CapturePlan:
    kinds = [_tensor_kind(tensor, path, alike) for tensor, path in zip(common.tensors, common.paths, strict=True)]
    shared = [tensor for tensor, kind in zip(common.tensors, kinds, strict=True) if kind is TensorKind.ALIKE]
    places = byte_offsets([_tensor_bytes(tensor) for tensor in shared])
    begin, end = share_bounds(places[-1], rank, size)
    index: dict[str, Any] = {
        "version": INDEX_VERSION,
        "tensors": [
            encode(tensor_spec(tensor, in_pieces=kind is not TensorKind.ALIKE))
            for tensor, kind in zip(common.tensors, kinds, strict=True)
        ],
        "own": own.tree,
        "own_tensors": [encode(tensor_spec(tensor)) for tensor in own.tensors],
    }
    if rank == 0:
        index["common"] = common.tree  # tensors are equal on all ranks; other values are taken from rank 0
    pieces = list(_rank_pieces(common.tensors, kinds, rank))
    return CapturePlan(shared, places, begin, end, pieces, own.tensors, index)


class TensorKind(enum.Enum):
    """How a tensor of the common state is saved."""

    ALIKE = enum.auto()  # equal on all ranks, which each write a share of it
    SHARDED = enum.auto()  # each rank has a part of it
    FIRST = enum.auto()  # may differ between ranks; rank 0's is saved, for example BatchNorm's statistics under DDP


IsReplicated = Callable[[StatePath, Any], bool]


def _tensor_kind(tensor: Any, path: StatePath, alike: IsReplicated) -> TensorKind:
    if is_sharded(tensor):
        return TensorKind.SHARDED
    return TensorKind.ALIKE if alike(path, tensor) else TensorKind.FIRST


def _rank_pieces(
    tensors: Sequence[Any], kinds: Sequence[TensorKind], rank: int
) -> Iterator[tuple[dict[str, Any], Any]]:
    """The pieces of tensors that this rank saves, each with its tensor's number and its region."""
    for number, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True)):
        if kind is TensorKind.SHARDED:
            region, saves = local_region(tensor)
            tensor = tensor.to_local()
        else:
            region, saves = whole_region(tensor.shape), kind is TensorKind.FIRST and rank == 0
        if saves and not region.is_empty:
            yield {"tensor": number, **encode(region)}, tensor


def capture_state(plan: CapturePlan, buffer: HostBuffer) -> Capture:
    pinned = plan.pinned
    memory = buffer.get(plan.size, pinned=pinned)
    for part in share_overlaps(plan.places, plan.begin, plan.end):
        source = as_byte_tensor(plan.alike[part.tensor])[part.first : part.last]
        memory[part.place : part.place + part.last - part.first].copy_(source, non_blocking=pinned)
    place = plan.end - plan.begin
    for tensor in (*(piece for _, piece in plan.pieces), *plan.own):
        memory[place : place + _tensor_bytes(tensor)].copy_(as_byte_tensor(tensor), non_blocking=pinned)
        place += _tensor_bytes(tensor)
    if pinned:
        _synchronize_copies()
    return Capture(
        data=byte_view(memory),
        index={**plan.index, "pieces": _pieces_with_offsets(plan)},
        begin=plan.begin,
        end=plan.end,
    )


def _synchronize_copies() -> None:
    import torch

    torch.cuda.current_stream().synchronize()


def _pieces_with_offsets(plan: CapturePlan) -> list[dict[str, Any]]:
    """The pieces with their offsets in the file."""
    places = byte_offsets([_tensor_bytes(tensor) for _, tensor in plan.pieces])
    share_size = plan.end - plan.begin
    return [{**piece, "offset": share_size + place} for (piece, _), place in zip(plan.pieces, places, strict=False)]
