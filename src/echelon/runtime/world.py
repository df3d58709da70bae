"""`echelon.join()`: this process's device, its process group, and the few things that every rank has to do right."""

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

from echelon.errors import ConfigError, EnvironmentProblem, JobFailed
from echelon.runtime.meeting import Meeting, await_key, leave, open_meeting, store_errors, within
from echelon.runtime.rank import Rank
from echelon.runtime.rendezvous import check_in, slurm_hosts
from echelon.runtime.shard import positions, remark

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")

RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
DONE = b"done"
NUMBERS_NODES = ("echelon", "torchrun", "srun")
"""They may rehearse several nodes on one host, and number them; of the others only the host's name is certain."""

_world: World | None = None
_joins = 0


def join(
    *, backend: str | None = None, timeout: timedelta = RENDEZVOUS_TIMEOUT, rendezvous: str | None = None
) -> World:
    """Meet all other ranks, under echelon, torchrun, srun or mpirun, or alone; the second call returns the same World.

    Waits `timeout` for the others and then says who is missing; collectives keep torch's own timeout. With
    `rendezvous="file:///shared/folder/name"` the store is that file and no port is opened for it: all ranks must
    see it, and every job wants its own.
    """
    global _world, _joins
    if _world is None:
        _world = _join(Rank.from_environ(os.environ), backend, timeout, rendezvous)
        _joins += 1
        atexit.register(_world.close)
    return _world


def _join(rank: Rank, backend: str | None, timeout: timedelta, url: str | None) -> World:
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        raise ConfigError(
            "there is a process group already",
            origin="torch.distributed.init_process_group, called before echelon.join()",
            hint="call echelon.join() in its place, and first: libraries that find a process group use it",
        )
    device = _device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # before the first collective, or all ranks of a node talk to GPU 0
    meeting = _meet(rank, timeout, url)
    dist.init_process_group(
        backend or ("nccl" if device.type == "cuda" else "gloo"),
        store=dist.PrefixStore("group", meeting.store),
        rank=rank.rank,
        world_size=rank.world_size,
    )
    return World(rank, device, meeting)


def _meet(rank: Rank, timeout: timedelta, url: str | None) -> Meeting:
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    opened = open_meeting(rank, url=url, agent_hosts=agent_hosts, timeout=timeout)
    meeting = within(opened, f"echelon/{rank.session}/{_joins}")
    check_in(meeting, rank, hosts=lambda: slurm_hosts(os.environ, rank), timeout=timeout)
    return meeting


def _device(rank: Rank) -> torch.device:
    import torch

    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return torch.device("cuda", device_index(visible, rank.local_rank)) if visible else torch.device("cpu")


def device_index(visible: int, local_rank: int) -> int:
    """Where a task sees one GPU it is its own (srun --gpus-per-task=1); otherwise every local rank has one."""
    if visible == 1:
        return 0
    if local_rank < visible:
        return local_rank
    raise EnvironmentProblem(
        f"local rank {local_rank} has no GPU: {visible} are visible here",
        origin="CUDA_VISIBLE_DEVICES, or the node itself",
        hint="start as many ranks on a node as it has GPUs",
    )


@final
class World:
    """All ranks, seen from this one."""

    def __init__(self, rank: Rank, device: torch.device, meeting: Meeting) -> None:
        self.rank = rank.rank
        self.local_rank = rank.local_rank
        self.node_rank = rank.node_rank
        self.size = rank.world_size
        self.local_size = rank.local_world_size
        self.device = device
        host = socket.gethostname()
        self._node = f"{host}/{rank.node_rank}" if rank.source in NUMBERS_NODES else host
        self._meeting: Meeting | None = meeting
        self._pid = os.getpid()
        self._turns = 0
        self._agreed: list[list[str]] = []
        self._said: set[str] = set()

    def __repr__(self) -> str:
        return f"World(rank={self.rank}, size={self.size}, device={str(self.device)!r})"

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process group; happens by itself when the script ends."""
        global _world
        if self._meeting is None or os.getpid() != self._pid:  # a forked child must not end its parent's group
            return
        meeting, self._meeting = self._meeting, None
        import torch.distributed as dist

        if dist.is_initialized():
            _keep_for_ever(dist.group.WORLD)
            dist.destroy_process_group()
        leave(meeting)
        if _world is self:
            _world = None
        atexit.unregister(self.close)

    @property
    def _open(self) -> Meeting:
        if self._meeting is None:
            raise ConfigError("this World is closed", hint="echelon.join() opens it again, on all ranks")
        return self._meeting

    def wrap(self, model: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """The model on this rank's device, in DistributedDataParallel, which gets the options."""
        from torch.nn.parallel import DistributedDataParallel

        from echelon.runtime.buckets import settle_buckets

        wrapped = DistributedDataParallel(model.to(self.device), device_ids=self._device_ids, **options)
        settle_buckets(wrapped)
        return wrapped

    @property
    def _device_ids(self) -> list[int] | None:
        return [self.device.index] if self.device.type == "cuda" else None

    @overload
    def shard(self, items: Sequence[Item], *, drop: bool = False) -> list[Item]: ...
    @overload
    def shard(self, items: torch.Tensor, *, drop: bool = False) -> torch.Tensor: ...
    def shard(self, items: Any, *, drop: bool = False) -> Any:
        """This rank's items: as many as every other rank's, with a few repeated or, if asked, dropped.

        Tensors and arrays stay what they are; of any other sequence it is a list.
        """
        length = len(items)
        self._say_once(remark(length, self.size, drop=drop))
        own = positions(length, self.rank, self.size, drop=drop)
        if hasattr(items, "shape"):
            return items[own]
        return [items[position] for position in own]

    def _say_once(self, sentence: str | None) -> None:
        if sentence is not None and self.rank == 0 and sentence not in self._said:
            self._said.add(sentence)
            builtins.print(f"echelon: {sentence}", file=sys.stderr, flush=True)

    @contextmanager
    def main_first(self, *, local: bool = False) -> Iterator[None]:
        """Rank 0 goes through the block first, or with `local` the first rank of each node; the others wait.

        They wait at the store and in no collective, so it may take hours. All ranks must come here equally often.
        """
        self._turns += 1
        key = f"first/{self._turns}/{self._node}" if local else f"first/{self._turns}"
        if (self.local_rank if local else self.rank) == 0:
            with self._telling(key):
                yield
        else:
            failure = failure_told(await_key(self._open, key))
            if failure is not None:
                raise failure
            yield

    @contextmanager
    def _telling(self, key: str) -> Iterator[None]:
        """Leaves word at the store of how the block ended; even SystemExit, or the others would wait forever."""
        store = self._open.store
        try:
            yield
        except BaseException as error:
            store.set(key, json.dumps({"rank": self.rank, "error": f"{type(error).__name__}: {error}"}))
            raise
        store.set(key, DONE.decode())

    def print(self, *values: object, sep: str = " ", end: str = "\n") -> None:
        """Prints on rank 0, at once, and nowhere else."""
        if self.rank == 0:
            builtins.print(*values, sep=sep, end=end, flush=True)

    def reduce_mean(self, values: Mapping[str, float | torch.Tensor]) -> dict[str, float]:
        """The mean over all ranks, in one all_reduce; every rank brings the same keys, in any order."""
        import torch
        import torch.distributed as dist

        keys = sorted(values)
        self._agree(keys)
        if not keys:
            return {}
        numbers = [torch.as_tensor(values[key], dtype=torch.float64, device=self.device) for key in keys]
        total = torch.stack([number.detach().reshape(()) for number in numbers])
        dist.all_reduce(total)
        return dict(zip(keys, (total / self.size).tolist(), strict=True))

    def _agree(self, keys: list[str]) -> None:
        """Asks the store, once for each new set of keys: with other keys the sums would be of different things."""
        if keys in self._agreed:
            return
        with store_errors(self._open):
            first = self._open.store.compare_set(f"keys/{len(self._agreed)}", "", json.dumps(keys))
        others = json.loads(first)
        if others != keys:
            raise ConfigError(
                f"rank {self.rank} brings the keys {keys}, and another rank {others}",
                origin="world.reduce_mean",
                hint="bring the same keys on every rank, with 0.0 where there is nothing to say",
            )
        self._agreed.append(keys)

    def barrier(self) -> None:
        """Returns when every rank is here."""
        import torch.distributed as dist

        dist.barrier(device_ids=self._device_ids)


def failure_told(word: bytes) -> JobFailed | None:
    """What went wrong where somebody went first; worded so that the verdict on a run takes it for an echo."""
    if word == DONE:
        return None
    told = json.loads(word)
    return JobFailed(
        told["error"],
        origin=f"world.main_first on rank {told['rank']}",
        why=f"rank {told['rank']} went first, and this peer of it left with the same error",
    )


def _keep_for_ever(group: Any) -> None:
    """A DDP model that is the last to let go of its group can hang there (torch 2.13): it joins the group's threads
    while it holds the GIL, and one of them may be waiting for that."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
