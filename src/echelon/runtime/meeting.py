"""The store that all ranks share: opened, held, waited at, and left."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.runtime.rank import Rank

FAREWELL_SECONDS = 10.0


class Store(Protocol):
    """What we use of torch's stores."""

    def add(self, key: str, amount: int, /) -> int: ...
    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """An open store, and what this rank owes the others in it."""

    store: Store
    place: str
    """For messages: 10.0.0.1:29500, or the path of a file."""
    hosting: bool = False
    """The store lives in this process, so the others lose it when this process ends."""
    file: Path | None = None


def open_meeting(rank: Rank, *, url: str | None, agent_hosts: bool, timeout: timedelta) -> Meeting:
    """A store that all ranks share. Raises ConfigError and EnvironmentProblem."""
    import torch.distributed as dist

    path = None if url is None else file_of(url)
    if rank.world_size == 1:
        return Meeting(store=dist.HashStore(), place="this process")
    if path is not None:
        return Meeting(store=_file_store(path, rank, timeout), place=path, file=Path(path))
    address, port = meeting_point(rank)
    hosting = rank.rank == 0 and not agent_hosts
    store = _serve(address, port, timeout) if hosting else _dial(address, port, timeout)
    return Meeting(store=store, place=f"{address}:{port}", hosting=hosting)


def within(meeting: Meeting, prefix: str) -> Meeting:
    """The same store with keys apart: those of another attempt, or of another join, are never read."""
    from torch.distributed import PrefixStore

    return replace(meeting, store=PrefixStore(prefix, meeting.store))


def file_of(url: str) -> str:
    """The path of `file:///shared/meet`; raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return unquote(parts.path)
    raise ConfigError(
        f"rendezvous is {url!r}",
        origin="echelon.join(rendezvous=...)",
        why="only a file that every rank can reach is known: file:///shared/folder/name",
        hint="leave it out, and MASTER_ADDR and MASTER_PORT say where to meet",
    )


def meeting_point(rank: Rank) -> tuple[str, int]:
    if rank.main_address is not None and rank.main_port is not None:
        return rank.main_address, rank.main_port
    name = "MASTER_ADDR" if rank.main_address is None else "MASTER_PORT"
    raise ConfigError(
        f"rank {rank.rank} of {rank.world_size} does not know where to meet the others: {name} is not set",
        origin=rank.source,
        hint=f"set {name} for all ranks, or use echelon.join(rendezvous='file:///shared/folder/name')",
    )


def _file_store(path: str, rank: Rank, timeout: timedelta) -> Any:
    from torch.distributed import FileStore

    try:
        store = FileStore(path, rank.world_size)
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"cannot open the rendezvous file {path}", origin="echelon.join(rendezvous=...)", why=_first_line(error)
        ) from error
    store.set_timeout(timeout)
    return store


def _serve(address: str, port: int, timeout: timedelta) -> Any:
    from torch.distributed import TCPStore

    try:
        return TCPStore(address, port, is_master=True, wait_for_workers=False, multi_tenant=True, timeout=timeout)
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"rank 0 cannot listen on port {port}",
            origin="MASTER_PORT",
            why=_first_line(error),
            hint="set MASTER_PORT to a free one, on all ranks; echelon run finds one by itself",
        ) from error


def _dial(address: str, port: int, timeout: timedelta) -> Any:
    from torch.distributed import TCPStore

    _await_listener(address, port, timeout)
    try:
        return TCPStore(address, port, is_master=False, timeout=timeout)
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"what answers at {address}:{port} is not a store of torch",
            origin="MASTER_ADDR, MASTER_PORT, or what srun and mpirun tell",
            why=_first_line(error),
            hint="set MASTER_PORT to a free one, on all ranks",
        ) from error


def _await_listener(address: str, port: int, timeout: timedelta) -> None:
    """torch's own wait prints a page of stack frames at every try, and cannot be interrupted."""
    problem: Exception | None = None
    for left in polls(timeout):
        try:
            socket.create_connection((address, port), timeout=max(left, 1.0)).close()
        except (OSError, UnicodeError) as error:  # Python's word for a name like a..b
            problem = error
        else:
            return
    raise EnvironmentProblem(
        f"rank 0 is missing: nothing answered at {address}:{port} for {timeout.total_seconds():g} s",
        origin="MASTER_ADDR, MASTER_PORT, or what srun and mpirun tell",
        why=str(problem),
        hint="look at the log of rank 0: it may have failed before echelon.join()",
    ) from problem


def leave(meeting: Meeting) -> None:
    """Says goodbye. Whoever hosts the store keeps it for those who still read in it."""
    try:
        if meeting.hosting:
            _see_off_the_others(meeting.store)
        elif meeting.store.add("gone", 1) == meeting.store.add("here", 0) and meeting.file is not None:
            meeting.file.unlink(missing_ok=True)  # torch tries too, and leaves it with all keys when two end at once
    except (RuntimeError, OSError):
        pass  # the store is gone already: nobody is left to be told


def _see_off_the_others(store: Store) -> None:
    for _ in polls(timedelta(seconds=FAREWELL_SECONDS)):
        if store.add("gone", 0) >= store.add("here", 0) - 1:
            return


def await_key(meeting: Meeting, key: str) -> bytes:
    """The key's value, however long that takes, and with no collective open meanwhile."""
    with store_errors(meeting):
        appears(meeting.store, key, None)
        return meeting.store.get(key)


@contextmanager
def store_errors(meeting: Meeting) -> Iterator[None]:
    """torch's words for a lost store, translated once; `Connection closed` tells the verdict that it is an echo."""
    try:
        yield
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"the store at {meeting.place} is gone",
            origin="the rank or agent that held it, which has ended",
            why=f"Connection closed: {_first_line(error)}",
        ) from error


def appears(store: Store, key: str, timeout: timedelta | None) -> bool:
    """Asks again and again: torch's own wait prints warnings when it times out, and cannot be interrupted."""
    return any(store.check([key]) for _ in polls(timeout))


def polls(timeout: timedelta | None, *, longest: float = 0.5) -> Iterator[float]:
    """Seconds left, at intervals that grow to the longest; once more at the very end."""
    pause, deadline = 0.002, None if timeout is None else time.monotonic() + timeout.total_seconds()
    while True:
        left = float("inf") if deadline is None else deadline - time.monotonic()
        yield left
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 1.3, longest)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
