"""A rank's share of the state, copied to host memory: the only part of a save that training waits for."""

from __future__ import annotations

import enum
import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from echelon.codec import encode
from echelon.runtime.checkpoint.regions import whole
from echelon.runtime.checkpoint.sharing import offsets, overlaps, share
from echelon.runtime.checkpoint.tensors import as_bytes, host_memory, region_of, spec_of, view_of
from echelon.runtime.checkpoint.tree import Flattened, Path, is_sharded

INDEX_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What this rank will write; nothing in it changes when training goes on."""

    data: memoryview
    index: dict[str, Any]
    begin: int
    end: int

    @property
    def digest(self) -> int:
        """Equal on all ranks, or their shares would not fit together."""
        return zlib.crc32(json.dumps(self.index["tensors"]).encode())


class HostBuffer:
    """Kept from save to save: memory that was never touched costs ten times as much to write to."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._warming: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        return self._memory is not None

    def get(self, count: int, *, pinned: bool) -> Any:
        if self._warming is not None:
            self._warming.join()
            self._warming = None
        if self._memory is None or self._memory.numel() < count:
            self._memory = None  # before the next one is taken: never two of them
            self._memory = host_memory(count, pinned=pinned)
        return self._memory[:count]

    def warm(self, plan: Plan) -> None:
        """Takes the memory ahead of the first save, and touches it while training goes on."""
        memory = self.get(plan.size, pinned=plan.pinned)
        self._warming = threading.Thread(target=memory.zero_, name="echelon-host-memory", daemon=True)
        self._warming.start()


@dataclass(frozen=True)
class Plan:
    """Where each byte of a rank goes: its share of what all have alike, its pieces of sharded tensors, its own."""

    alike: list[Any]
    places: list[int]
    begin: int
    end: int
    pieces: list[tuple[dict[str, Any], Any]]
    own: list[Any]
    index: dict[str, Any]

    @property
    def size(self) -> int:
        return self.end - self.begin + sum(map(_size, [*(tensor for _, tensor in self.pieces), *self.own]))

    @property
    def pinned(self) -> bool:
        return any(tensor.is_cuda for tensor in (*self.alike, *(piece for _, piece in self.pieces)))


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def planned(common: Flattened, own: Flattened, rank: int, size: int, *, alike: Alike) -> Plan:
    kinds = [_kind(tensor, path, alike) for tensor, path in zip(common.tensors, common.paths, strict=True)]
    shared = [tensor for tensor, kind in zip(common.tensors, kinds, strict=True) if kind is Kind.ALIKE]
    places = offsets([_size(tensor) for tensor in shared])
    begin, end = share(places[-1], rank, size)
    index: dict[str, Any] = {
        "version": INDEX_VERSION,
        "tensors": [
            encode(spec_of(tensor, in_pieces=kind is not Kind.ALIKE))
            for tensor, kind in zip(common.tensors, kinds, strict=True)
        ],
        "own": own.tree,
        "own_tensors": [encode(spec_of(tensor)) for tensor in own.tensors],
    }
    if rank == 0:
        index["common"] = common.tree  # the ranks agree on the tensors; of all else rank 0's word counts
    pieces = list(_pieces(common.tensors, kinds, rank))
    return Plan(shared, places, begin, end, pieces, own.tensors, index)


class Kind(enum.Enum):
    """How a tensor of the common state is kept."""

    ALIKE = enum.auto()  # all ranks have it whole, and share the writing
    SHARDED = enum.auto()  # each rank has a part of it
    FIRST = enum.auto()  # ranks may differ, and rank 0's counts: BatchNorm's statistics under DDP, for one


Alike = Callable[[Path, Any], bool]


def _kind(tensor: Any, path: Path, alike: Alike) -> Kind:
    if is_sharded(tensor):
        return Kind.SHARDED
    return Kind.ALIKE if alike(path, tensor) else Kind.FIRST


def _pieces(tensors: Sequence[Any], kinds: Sequence[Kind], rank: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """What this rank saves of tensors that are kept in pieces, and which part of which tensor it is."""
    for number, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True)):
        if kind is Kind.SHARDED:
            region, saves = region_of(tensor)
            tensor = tensor.to_local()
        else:
            region, saves = whole(tensor.shape), kind is Kind.FIRST and rank == 0
        if saves and not region.is_empty:
            yield {"tensor": number, **encode(region)}, tensor


def take(plan: Plan, buffer: HostBuffer) -> Snapshot:
    pinned = plan.pinned
    memory = buffer.get(plan.size, pinned=pinned)
    for part in overlaps(plan.places, plan.begin, plan.end):
        source = as_bytes(plan.alike[part.tensor])[part.first : part.last]
        memory[part.place : part.place + part.last - part.first].copy_(source, non_blocking=pinned)
    place = plan.end - plan.begin
    for tensor in (*(piece for _, piece in plan.pieces), *plan.own):
        memory[place : place + _size(tensor)].copy_(as_bytes(tensor), non_blocking=pinned)
        place += _size(tensor)
    if pinned:
        _finish_copies()
    return Snapshot(data=view_of(memory), index={**plan.index, "pieces": _placed(plan)}, begin=plan.begin, end=plan.end)


def _finish_copies() -> None:
    import torch

    torch.cuda.current_stream().synchronize()


def _placed(plan: Plan) -> list[dict[str, Any]]:
    """Each piece with its offset in the file."""
    places = offsets([_size(tensor) for _, tensor in plan.pieces])
    share_size = plan.end - plan.begin
    return [{**piece, "offset": share_size + place} for (piece, _), place in zip(plan.pieces, places, strict=False)]
