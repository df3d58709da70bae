"""The rendezvous store of all ranks, and the signatures of the values in it."""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.placement import STORE_KEY
from echelon.record import record
from echelon.train.rank import Rank

SIGNATURE_DIGITS = 64


class SignedStore:
    """A torch store whose values carry a signature of scope, key and value. Without a secret, values are unsigned."""

    def __init__(self, store: Any, *, scope: str, secret: bytes) -> None:
        self._store = store
        self._scope = scope
        self._secret = secret

    def set(self, key: str, value: str) -> None:
        self._store.set(key, self._sign(key, value))

    def get(self, key: str) -> bytes:
        return self._verify(key, self._store.get(key))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        before = self._sign(key, expected) if expected else ""
        return self._verify(key, self._store.compare_set(key, before, self._sign(key, desired)))

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def delete_key(self, key: str) -> bool:
        return bool(self._store.delete_key(key))

    def _sign(self, key: str, value: str) -> str:
        return self._signature(key, value.encode()) + value if self._secret else value

    def _verify(self, key: str, data: bytes) -> bytes:
        """Raises EnvironmentProblem for a value that no rank of this generation signed."""
        if not self._secret:
            return data
        signature, value = data[:SIGNATURE_DIGITS], data[SIGNATURE_DIGITS:]
        if hmac.compare_digest(signature, self._signature(key, value).encode()):
            return value
        raise EnvironmentProblem(
            f"the value of {self._scope}/{key} in the store was not written by this run",
            origin="the rendezvous store at MASTER_ADDR:MASTER_PORT",
            why="its signature is wrong: another program that reaches the port has written to it",
            hint="find out which program uses that port; --interface chooses a network that others do not reach",
        )

    def _signature(self, key: str, value: bytes) -> str:
        return hmac.new(self._secret, f"{self._scope}\0{key}\0".encode() + value, "sha256").hexdigest()


def store_secret(environ: Mapping[str, str] | None = None) -> bytes:
    """The signing key of this generation; empty outside of an echelon run."""
    return (os.environ if environ is None else environ).get(STORE_KEY, "").encode()


LEAVE_SECONDS = 10.0


class Store(Protocol):
    """The methods of torch's stores that this package uses."""

    def add(self, key: str, amount: int, /) -> int: ...
    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


@record
class SharedStore:
    """An open store, and what this rank must do before it leaves."""

    store: Store
    place: str
    """For messages: 10.0.0.1:29500, or the path of a file."""
    hosting: bool = False
    """The store runs in this process, so the other ranks lose it when this process ends."""
    file: Path | None = None
    scope: str = ""

    @property
    def signed(self) -> SignedStore:
        """The store for our own values, which are signed. torch writes its values unsigned."""
        return SignedStore(self.store, scope=self.scope, secret=store_secret())


def open_shared_store(rank: Rank, *, url: str | None, agent_hosts: bool, timeout: timedelta) -> SharedStore:
    """Opens the store on rank 0, connects to it on other ranks, or uses the file of `url`.

    With `agent_hosts`, the agent already runs the store. Raises ConfigError and EnvironmentProblem.
    """
    import torch.distributed as dist

    path = None if url is None else parse_file_url(url)
    if rank.world_size == 1:
        return SharedStore(store=dist.HashStore(), place="this process")
    if path is not None:
        return SharedStore(store=_open_file_store(path, rank, timeout), place=path, file=Path(path))
    address, port = store_address(rank)
    hosting = rank.rank == 0 and not agent_hosts
    store = _start_tcp_store(address, port, timeout) if hosting else _connect_tcp_store(address, port, timeout)
    return SharedStore(store=store, place=f"{address}:{port}", hosting=hosting)


def with_prefix(shared: SharedStore, prefix: str) -> SharedStore:
    """The same store with prefixed keys, so that keys of another attempt or another join are never read."""
    from torch.distributed import PrefixStore

    return replace(shared, store=PrefixStore(prefix, shared.store), scope=f"{shared.scope}{prefix}/")


def parse_file_url(url: str) -> str:
    """The path of `file:///shared/meet`; raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return unquote(parts.path)
    raise ConfigError(
        f"rendezvous is {url!r}",
        origin="echelon.join(rendezvous=...)",
        why="the only supported URL is a file that every rank can reach: file:///shared/folder/name",
        hint="leave it out to use MASTER_ADDR and MASTER_PORT",
    )


def store_address(rank: Rank) -> tuple[str, int]:
    if rank.main_address is not None and rank.main_port is not None:
        return rank.main_address, rank.main_port
    name = "MASTER_ADDR" if rank.main_address is None else "MASTER_PORT"
    raise ConfigError(
        f"rank {rank.rank} of {rank.world_size} cannot find the rendezvous: {name} is not set",
        origin=rank.source,
        hint=f"set {name} for all ranks, or use echelon.join(rendezvous='file:///shared/folder/name')",
    )


def _open_file_store(path: str, rank: Rank, timeout: timedelta) -> Any:
    from torch.distributed import FileStore

    try:
        store = FileStore(path, rank.world_size)
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"cannot open the rendezvous file {path}", origin="echelon.join(rendezvous=...)", why=_first_line(error)
        ) from error
    store.set_timeout(timeout)
    return store


def _start_tcp_store(address: str, port: int, timeout: timedelta) -> Any:
    from torch.distributed import TCPStore

    try:
        return TCPStore(address, port, is_master=True, wait_for_workers=False, multi_tenant=True, timeout=timeout)
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"rank 0 cannot listen on port {port}",
            origin="MASTER_PORT",
            why=_first_line(error),
            hint="set MASTER_PORT to a free port on all ranks; echelon run chooses one automatically",
        ) from error


def _connect_tcp_store(address: str, port: int, timeout: timedelta) -> Any:
    from torch.distributed import TCPStore

    _wait_for_listener(address, port, timeout)
    try:
        return TCPStore(address, port, is_master=False, timeout=timeout)
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"the program at {address}:{port} is not a torch store",
            origin="MASTER_ADDR, MASTER_PORT, or the variables of srun or mpirun",
            why=_first_line(error),
            hint="set MASTER_PORT to a free port on all ranks",
        ) from error


def _wait_for_listener(address: str, port: int, timeout: timedelta) -> None:
    """Polls until the port accepts a connection. Raises EnvironmentProblem after the timeout.

    torch's own wait prints a page of stack frames at every try, and cannot be interrupted.
    """
    problem: Exception | None = None
    for left in poll_until(timeout):
        try:
            socket.create_connection((address, port), timeout=max(left, 1.0)).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: a name such as a..b
            problem = error
        else:
            return
    raise EnvironmentProblem(
        f"rank 0 is missing: nothing answered at {address}:{port} for {timeout.total_seconds():g} s",
        origin="MASTER_ADDR, MASTER_PORT, or the variables of srun or mpirun",
        why=str(problem),
        hint="look at the log of rank 0: it may have failed before echelon.join()",
    ) from problem


def leave_store(shared: SharedStore) -> None:
    """Counts this rank as gone. The rank that hosts the store first waits up to 10 s for all others.

    The last rank to leave a file store deletes the file.
    """
    try:
        if shared.hosting:
            _wait_until_others_left(shared.store)
        elif shared.store.add("gone", 1) == shared.store.add("here", 0) and shared.file is not None:
            shared.file.unlink(missing_ok=True)  # torch tries too, but leaves the file if two ranks end at once
    except (RuntimeError, OSError):
        pass  # the store is already closed


def _wait_until_others_left(store: Store) -> None:
    for _ in poll_until(timedelta(seconds=LEAVE_SECONDS)):
        if store.add("gone", 0) >= store.add("here", 0) - 1:
            return


def wait_for_key(shared: SharedStore, key: str) -> bytes:
    """The value of the key. Waits without a timeout and without a collective. Raises EnvironmentProblem."""
    with translate_store_errors(shared):
        poll_for_key(shared.store, key, None)
        return shared.signed.get(key)


@contextmanager
def translate_store_errors(shared: SharedStore) -> Iterator[None]:
    """Translates torch's errors about a lost store into EnvironmentProblem.

    The text contains `Connection closed`, so that the verdict does not take the error for the cause.
    """
    try:
        yield
    except RuntimeError as error:
        raise EnvironmentProblem(
            f"lost the connection to the store at {shared.place}",
            origin="the rank or agent that hosted the store has exited",
            why=f"Connection closed: {_first_line(error)}",
        ) from error


def poll_for_key(store: Store, key: str, timeout: timedelta | None) -> bool:
    """Polls for the key until the timeout. torch's own wait prints warnings at its timeout and is not interruptible."""
    return any(store.check([key]) for _ in poll_until(timeout))


def poll_until(timeout: timedelta | None, *, longest: float = 0.5) -> Iterator[float]:
    """Yields the seconds left, at intervals that grow from 2 ms to `longest` seconds, and a last time at the deadline.

    Without a timeout it never ends.
    """
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
