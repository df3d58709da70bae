"""`echelon.join()` and `World`: device and process group of this rank, and operations over all ranks."""

from __future__ import annotations

import atexit
import builtins
import ctypes
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, final, overload

from echelon.errors import ConfigError, JobFailed
from echelon.train.rank import Rank, device_index, shard_note, shard_positions
from echelon.train.rendezvous import register_rank, slurm_hosts
from echelon.train.store import (
    SharedStore,
    leave_store,
    open_shared_store,
    translate_store_errors,
    wait_for_key,
    with_prefix,
)
from echelon.untrusted import parse_json

if TYPE_CHECKING:
    import torch


Item = TypeVar("Item")
RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
DONE = b"done"
NODE_NUMBERING_LAUNCHERS = ("echelon", "torchrun", "srun")
"""Launchers that may run several nodes on one host, and number them. For others, only the host's name is certain."""
_world: World | None = None
_joins = 0


def join(
    *, backend: str | None = None, timeout: timedelta = RENDEZVOUS_TIMEOUT, rendezvous: str | None = None
) -> World:
    """Joins all other ranks, under echelon, torchrun, srun, mpirun or alone. A second call returns the same World.

    Waits `timeout` for the other ranks, then raises an error that names the missing ones. Collectives keep torch's own
    timeout. With `rendezvous="file:///shared/folder/name"` the store is that file and opens no port. All ranks must
    have access to the file, and every job needs its own.
    """
    global _world, _joins
    if _world is None:
        _world = _create_world(Rank.from_environ(os.environ), backend, timeout, rendezvous)
        _joins += 1
        atexit.register(_world.close)
    return _world


def _create_world(rank: Rank, backend: str | None, timeout: timedelta, url: str | None) -> World:
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        raise ConfigError(
            "a process group already exists",
            origin="torch.distributed.init_process_group, called before echelon.join()",
            hint="call echelon.join() first; other libraries then use its process group",
        )
    device = _rank_device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # before the first collective, or all ranks of a node use GPU 0
    shared = _open_rendezvous(rank, timeout, url)
    dist.init_process_group(
        backend or ("nccl" if device.type == "cuda" else "gloo"),
        store=dist.PrefixStore("group", shared.store),
        rank=rank.rank,
        world_size=rank.world_size,
    )
    return World(rank, device, shared)


def _open_rendezvous(rank: Rank, timeout: timedelta, url: str | None) -> SharedStore:
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    opened = open_shared_store(rank, url=url, agent_hosts=agent_hosts, timeout=timeout)
    shared = with_prefix(opened, f"echelon/{rank.session}/{_joins}")
    register_rank(shared, rank, hosts=lambda: slurm_hosts(os.environ, rank), timeout=timeout)
    return shared


def _rank_device(rank: Rank) -> torch.device:
    import torch

    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return torch.device("cuda", device_index(visible, rank.local_rank)) if visible else torch.device("cpu")


@final
class World:
    """Ranks, sizes and device of this process, and operations over all ranks."""

    def __init__(self, rank: Rank, device: torch.device, shared: SharedStore) -> None:
        self.rank = rank.rank
        self.local_rank = rank.local_rank
        self.node_rank = rank.node_rank
        self.size = rank.world_size
        self.local_size = rank.local_world_size
        self.device = device
        host = socket.gethostname()
        self._node = f"{host}/{rank.node_rank}" if rank.source in NODE_NUMBERING_LAUNCHERS else host
        self._shared: SharedStore | None = shared
        self._pid = os.getpid()
        self._turns = 0
        self._agreed: list[list[str]] = []
        self._printed_notes: set[str] = set()

    def __repr__(self) -> str:
        return f"World(rank={self.rank}, size={self.size}, device={str(self.device)!r})"

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process group. Runs automatically when the script ends."""
        global _world
        if self._shared is None or os.getpid() != self._pid:  # a forked child must not end its parent's group
            return
        shared, self._shared = self._shared, None
        import torch.distributed as dist

        if dist.is_initialized():
            _keep_alive(dist.group.WORLD)
            dist.destroy_process_group()
        leave_store(shared)
        if _world is self:
            _world = None
        atexit.unregister(self.close)

    @property
    def _open_store(self) -> SharedStore:
        if self._shared is None:
            raise ConfigError("this World is closed", hint="call echelon.join() again, on all ranks")
        return self._shared

    def wrap(self, model: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """Moves the model to this rank's device and wraps it in DistributedDataParallel with these options."""
        from torch.nn.parallel import DistributedDataParallel

        wrapped = DistributedDataParallel(model.to(self.device), device_ids=self._device_ids, **options)
        _rebuild_buckets(wrapped)
        return wrapped

    @property
    def _device_ids(self) -> list[int] | None:
        return [self.device.index] if self.device.type == "cuda" else None

    @overload
    def shard(self, items: Sequence[Item], *, drop: bool = False) -> list[Item]: ...
    @overload
    def shard(self, items: torch.Tensor, *, drop: bool = False) -> torch.Tensor: ...
    def shard(self, items: Any, *, drop: bool = False) -> Any:
        """This rank's items. All ranks get the same number: a few items are repeated or, with `drop`, left out.

        A tensor or array keeps its type. Any other sequence becomes a list.
        """
        length = len(items)
        self._say_once(shard_note(length, self.size, drop=drop))
        own = shard_positions(length, self.rank, self.size, drop=drop)
        if hasattr(items, "shape"):
            return items[own]
        return [items[position] for position in own]

    def _say_once(self, sentence: str | None) -> None:
        if sentence is not None and self.rank == 0 and sentence not in self._printed_notes:
            self._printed_notes.add(sentence)
            builtins.print(f"echelon: {sentence}", file=sys.stderr, flush=True)

    @contextmanager
    def main_first(self, *, local: bool = False) -> Iterator[None]:
        """Runs the block on rank 0 first, or with `local` on the first rank of each node, while the others wait.

        They poll the store and are not in a collective, so the block may take hours. All ranks must enter it equally
        often. If the first rank fails, the others raise JobFailed.
        """
        self._turns += 1
        key = f"first/{self._turns}/{self._node}" if local else f"first/{self._turns}"
        if (self.local_rank if local else self.rank) == 0:
            with self._report_outcome(key):
                yield
        else:
            failure = main_first_failure(wait_for_key(self._open_store, key))
            if failure is not None:
                raise failure
            yield

    @contextmanager
    def _report_outcome(self, key: str) -> Iterator[None]:
        """Stores how the block ended, also for SystemExit: without a value the other ranks would wait forever."""
        store = self._open_store.signed
        try:
            yield
        except BaseException as error:
            store.set(key, json.dumps({"rank": self.rank, "error": f"{type(error).__name__}: {error}"}))
            raise
        store.set(key, DONE.decode())

    def print(self, *values: object, sep: str = " ", end: str = "\n") -> None:
        """Prints and flushes on rank 0 only."""
        if self.rank == 0:
            builtins.print(*values, sep=sep, end=end, flush=True)

    def reduce_mean(self, values: Mapping[str, float | torch.Tensor]) -> dict[str, float]:
        """The mean over all ranks, in one all_reduce. All ranks must pass the same keys, in any order."""
        import torch
        import torch.distributed as dist

        keys = sorted(values)
        self._check_same_keys(keys)
        if not keys:
            return {}
        numbers = [torch.as_tensor(values[key], dtype=torch.float64, device=self.device) for key in keys]
        total = torch.stack([number.detach().reshape(()) for number in numbers])
        dist.all_reduce(total)
        return dict(zip(keys, (total / self.size).tolist(), strict=True))

    def _check_same_keys(self, keys: list[str]) -> None:
        """Compares each new set of keys once through the store: with other keys, unrelated values would be summed."""
        if keys in self._agreed:
            return
        with translate_store_errors(self._open_store):
            first = self._open_store.signed.compare_set(f"keys/{len(self._agreed)}", "", json.dumps(keys))
        others = parse_json(first)
        if others != keys:
            raise ConfigError(
                f"rank {self.rank} passed the keys {keys}, another rank passed {others}",
                origin="world.reduce_mean",
                hint="pass the same keys on every rank, with 0.0 for a rank without a value",
            )
        self._agreed.append(keys)

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        import torch.distributed as dist

        dist.barrier(device_ids=self._device_ids)


def main_first_failure(word: bytes) -> JobFailed | None:
    """The error of the rank that ran a `main_first` block; None if it succeeded.

    The wording marks it as a consequence, so that the verdict does not take this error for the cause.
    """
    if word == DONE:
        return None
    outcome = parse_json(word)
    return JobFailed(
        outcome["error"],
        origin=f"world.main_first on rank {outcome['rank']}",
        why=f"rank {outcome['rank']} ran the block first; this peer left with the same error",
    )


def _keep_alive(group: Any) -> None:
    """Prevents the group from being freed. A DDP model that drops the last reference to its group can hang (torch
    2.13): it joins the group's threads while it holds the GIL, and one of them may be waiting for the GIL."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _rebuild_buckets(wrapped: Any) -> None:
    """Repacks DDP's gradient buckets now, with a backward pass over the parameters alone: last parameter first, as in
    training.

    DDP packs gradients into buckets by an initial guess. After the first step it repacks them in the order in which the
    gradients arrived. With more than two ranks, the order within a bucket decides how sums are rounded. Without this
    call, the first step after a restart would differ in the last bit from the same step of an uninterrupted run.

    Does nothing if torch would not repack them either, or if such a pass would be wrong. Resets the gradients to None.
    """
    if wrapped.find_unused_parameters or wrapped.static_graph or _has_sparse_gradients(wrapped.module):
        return
    parameters = [parameter for parameter in wrapped.module.parameters() if parameter.requires_grad]
    reducer = wrapped.reducer
    reducer.prepare_for_backward([])
    sum(parameter.sum() for parameter in parameters).backward()
    reducer._rebuild_buckets()
    for parameter in parameters:
        parameter.grad = None


def _has_sparse_gradients(module: Any) -> bool:
    return any(getattr(part, "sparse", False) for part in module.modules())
