"""Tensors as bytes: their descriptions, regions, and which rank writes which bytes."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from echelon.record import record

if TYPE_CHECKING:
    import torch


SHARE_ALIGNMENT_BYTES = 64
"""Shares start at multiples of this many bytes, so that copies are aligned."""


class ShareOverlap(NamedTuple):
    """A range of one tensor's bytes, and its offset `place` in a share."""

    tensor: int
    first: int
    last: int
    place: int


def share_bounds(total: int, rank: int, size: int) -> tuple[int, int]:
    """The start and end of a rank's share. The shares of all ranks cover all bytes and have about the same size."""
    return _share_start(total, rank, size), _share_start(total, rank + 1, size)


def _share_start(total: int, index: int, size: int) -> int:
    place = total * index // size
    return total if index == size else place - place % SHARE_ALIGNMENT_BYTES


def byte_offsets(sizes: Sequence[int]) -> list[int]:
    """The offset of each tensor if they are laid end to end, followed by the total size."""
    return [0, *accumulate(sizes)]


def share_overlaps(places: Sequence[int], begin: int, end: int) -> Iterator[ShareOverlap]:
    """The parts of tensors between two offsets, in order. `places` has the offsets of all tensors and the total."""
    for tensor, (first, last) in enumerate(pairwise(places)):
        low, high = max(first, begin), min(last, end)
        if low < high:
            yield ShareOverlap(tensor, low - first, high - first, low - begin)


@dataclass(frozen=True)
class Region:
    """A rectangular region: its start in the whole tensor and its length, in each dimension."""

    starts: tuple[int, ...]
    shape: tuple[int, ...]

    def within(self, other: Region) -> tuple[slice, ...]:
        """This region as an index into the other one, which must contain it."""
        pairs = zip(self.starts, self.shape, other.starts, strict=True)
        return tuple(slice(start - base, start - base + length) for start, length, base in pairs)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape


def whole_region(shape: Sequence[int]) -> Region:
    return Region((0,) * len(shape), tuple(shape))


def region_intersection(one: Region, other: Region) -> Region | None:
    """The intersection; None if it is empty."""
    starts = tuple(max(a, b) for a, b in zip(one.starts, other.starts, strict=True))
    ends = tuple(min(a, b) for a, b in zip(_region_ends(one), _region_ends(other), strict=True))
    found = Region(starts, tuple(max(0, end - start) for start, end in zip(starts, ends, strict=True)))
    return None if found.is_empty else found


def _region_ends(region: Region) -> tuple[int, ...]:
    return tuple(start + length for start, length in zip(region.starts, region.shape, strict=True))


@record
class TensorSpec:
    """The dtype and shape of a saved tensor."""

    dtype: str
    shape: tuple[int, ...]
    in_pieces: bool = False
    """True if it is not in the common bytes: it is sharded between ranks, or saved by rank 0 alone."""

    @property
    def size(self) -> int:
        return element_size(self.dtype) * numel(self.shape)


def numel(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def dtype_from_name(name: str) -> torch.dtype:
    """Raises ValueError for an unknown name."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}")
    return dtype


def element_size(name: str) -> int:
    return int(dtype_from_name(name).itemsize)


def tensor_spec(tensor: Any, *, in_pieces: bool = False) -> TensorSpec:
    return TensorSpec(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), in_pieces=in_pieces)


def as_byte_tensor(tensor: Any) -> Any:
    """A flat uint8 tensor of the same memory, or of a copy if the tensor is not contiguous."""
    import torch

    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def byte_view(tensor: Any) -> memoryview:
    """The memory of a flat uint8 tensor on the CPU, without numpy. It is valid as long as the tensor exists."""
    count = tensor.numel()
    if count == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * count).from_address(tensor.data_ptr())).cast("B")


def allocate_host_memory(count: int, *, pinned: bool) -> Any:
    """A uint8 tensor of new memory, in huge pages if the kernel supports them. The first write allocates the pages."""
    import torch

    if pinned or count == 0:
        return torch.empty(count, dtype=torch.uint8, pin_memory=pinned and count > 0)
    memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # the kernel does not support huge pages
    return torch.frombuffer(memory, dtype=torch.uint8)


def local_region(tensor: Any) -> tuple[Region, bool]:
    """The region of a sharded tensor that this rank holds, and whether this rank saves it. Raises ValueError."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = tensor.device_mesh, tensor.placements
    if not all(isinstance(placement, (Replicate, Shard)) for placement in placements):
        raise ValueError(f"a tensor with placements {placements} cannot be saved")
    shape, starts = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    here = mesh.get_coordinate()
    first = here is not None and all(
        place == 0 for place, placement in zip(here, placements, strict=True) if isinstance(placement, Replicate)
    )
    return Region(tuple(starts), tuple(shape)), first
