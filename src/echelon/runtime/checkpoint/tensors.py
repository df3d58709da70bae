"""Tensors as plain bytes in host memory: how they are described, seen and made."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from echelon.runtime.checkpoint.regions import Region

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What has to be known of a tensor beside its bytes."""

    dtype: str
    shape: tuple[int, ...]
    in_pieces: bool = False
    """Not among the common bytes: sharded between ranks, or kept by rank 0 alone."""

    @property
    def size(self) -> int:
        return element_size(self.dtype) * numel(self.shape)


def numel(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def dtype_named(name: str) -> torch.dtype:
    """Raises ValueError."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}")
    return dtype


def element_size(name: str) -> int:
    return int(dtype_named(name).itemsize)


def spec_of(tensor: Any, *, in_pieces: bool = False) -> Spec:
    return Spec(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), in_pieces=in_pieces)


def as_bytes(tensor: Any) -> Any:
    """A flat tensor of the same memory where that is possible, of a copy where the tensor has gaps."""
    import torch

    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def view_of(tensor: Any) -> memoryview:
    """The memory of a flat tensor of bytes on the CPU, without numpy; valid as long as the tensor lives."""
    count = tensor.numel()
    if count == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * count).from_address(tensor.data_ptr())).cast("B")


def host_memory(count: int, *, pinned: bool) -> Any:
    """Fresh bytes, not yet backed by pages; in huge ones where the kernel has them."""
    import torch

    if pinned or count == 0:
        return torch.empty(count, dtype=torch.uint8, pin_memory=pinned and count > 0)
    memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without them
    return torch.frombuffer(memory, dtype=torch.uint8)


def region_of(tensor: Any) -> tuple[Region, bool]:
    """Which part of a sharded tensor this rank holds, and whether it is the one to save it."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = tensor.device_mesh, tensor.placements
    if not all(isinstance(placement, (Replicate, Shard)) for placement in placements):
        raise ValueError(f"a tensor with placements {placements} has no bytes of its own to save")
    shape, starts = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    here = mesh.get_coordinate()
    first = here is not None and all(
        place == 0 for place, placement in zip(here, placements, strict=True) if isinstance(placement, Replicate)
    )
    return Region(tuple(starts), tuple(shape)), first
