"""The nodes of a doctor job: the place of each, the lines in which it prints results, and their meeting."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from echelon.codec import encode
from echelon.doctor.model import Plan, Result
from echelon.placement import STORE_KEY
from echelon.record import record
from echelon.system.network import address_of, source_address
from echelon.untrusted import parse_json
from echelon.wire.channel import Channel, ChannelClosed, Handshake

MARK = '{"doctor": '
Message = dict[str, Any]


def format_line(kind: str, value: Mapping[str, Any]) -> str:
    return json.dumps({"doctor": kind, **value})


def emit(kind: str, **value: Any) -> None:
    """One line, written at once, so that lines of other processes cannot get into it."""
    os.write(1, format_line(kind, value).encode() + b"\n")


def emit_result(result: Result) -> None:
    emit("result", **encode(replace(result, seconds=round(result.seconds, 3))))


@record
class Place:
    """This node's place in the doctor job, from the variables of its rank."""

    rank: int
    size: int
    main: tuple[str, int]
    token: bytes
    run_id: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Place:
        return cls(
            rank=int(environ["RANK"]),
            size=int(environ["WORLD_SIZE"]),
            main=(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])),
            token=bytes.fromhex(environ[STORE_KEY]),
            run_id=environ["ECHELON_RUN_ID"],
        )

    @classmethod
    def from_json(cls, text: str, environ: Mapping[str, str]) -> Place:
        """The place of a preflight check. The key comes in a variable, which other users cannot read."""
        value = parse_json(text)
        return cls(
            rank=value["rank"],
            size=value["size"],
            main=(value["address"], value["port"]),
            token=bytes.fromhex(environ[STORE_KEY]),
            run_id=value["run_id"],
        )

    def own_address(self, plan: Plan) -> str:
        """The address on the chosen network. Rehearsed nodes have loopback addresses of their own."""
        if plan.interface:
            return address_of(plan.interface)
        if self.main[0].startswith("127."):
            return f"127.0.0.{self.rank % 254 + 1}"
        return source_address(self.main[0]) or self.main[0]


# The meeting: the first node listens on one address, for nodes that know the run's key


def open_listener(address: str, port: int) -> socket.socket:
    """The agent of this node holds the port with SO_REUSEADDR until a process of the rank listens on it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(4096)
    return listener


@dataclass(kw_only=True)
class Meeting:
    listener: socket.socket
    token: bytes
    size: int
    channels: dict[int, Channel] = field(default_factory=dict)
    hellos: dict[int, Message] = field(default_factory=dict)
    replies: dict[int, list[Message]] = field(default_factory=dict)

    # Arrival

    def gather(self, seconds: float) -> None:
        """Waits until all nodes have said hello, or for `seconds`."""
        deadline = time.monotonic() + seconds
        pending: dict[int, Handshake] = {}
        new: list[Channel] = []
        self.listener.setblocking(False)
        while len(self.hellos) < self.size and (left := deadline - time.monotonic()) > 0:
            sources = [self.listener.fileno(), *pending, *(channel.fileno() for channel in new)]
            readable = set(select.select(sources, [], [], left)[0])
            if self.listener.fileno() in readable:
                handshake = Handshake(self.listener.accept()[0], self.token)
                pending[handshake.sock.fileno()] = handshake
            new += self._finish_handshakes(pending, readable)
            new = [channel for channel in new if not self._take_hello(channel, readable)]

    def _finish_handshakes(self, pending: dict[int, Handshake], readable: set[int]) -> list[Channel]:
        done = []
        for fd in [fd for fd in pending if fd in readable]:
            try:
                channel = pending[fd].advance()
            except ChannelClosed:
                pending.pop(fd).sock.close()
                continue
            if channel is not None:
                pending.pop(fd)
                done.append(channel)
        return done

    def _take_hello(self, channel: Channel, readable: set[int]) -> bool:
        """Whether the channel needs no more attention: its node is known, or it has gone."""
        if channel.fileno() not in readable:
            return False
        try:
            messages = channel.receive()
        except ChannelClosed:
            channel.close()
            return True
        for message in messages:
            rank = message.get("hello", {}).get("rank")
            if isinstance(rank, int) and 0 <= rank < self.size:
                self.hellos[rank], self.channels[rank] = message["hello"], channel
        return bool(messages)

    # Questions

    def send(self, ranks: Iterable[int], message: Message) -> None:
        for rank in ranks:
            if rank in self.channels:
                self.channels[rank].send(message)

    def receive(self, ranks: Sequence[int], key: str, seconds: float) -> dict[int, Any]:
        """The answers with this key. Nodes that are silent or gone are left out."""
        deadline = time.monotonic() + seconds
        answers: dict[int, Any] = {}
        while waiting := [rank for rank in ranks if rank in self.channels and rank not in answers]:
            for rank in waiting:
                kept = self.replies.get(rank, [])
                found = next((message for message in kept if key in message), None)
                if found is not None:
                    kept.remove(found)
                    answers[rank] = found[key]
            waiting = [rank for rank in waiting if rank not in answers]
            left = deadline - time.monotonic()
            if not waiting or left <= 0:
                break
            self._read(waiting, left)
        return answers

    def _read(self, ranks: Sequence[int], seconds: float) -> None:
        by_fd = {self.channels[rank].fileno(): rank for rank in ranks}
        for fd in select.select(list(by_fd), [], [], seconds)[0]:
            rank = by_fd[fd]
            try:
                self.replies.setdefault(rank, []).extend(self.channels[rank].receive())
            except ChannelClosed:
                self.channels.pop(rank).close()

    def ask(self, ranks: Sequence[int], message: Message, key: str, seconds: float) -> dict[int, Any]:
        self.send(ranks, message)
        return self.receive(ranks, key, seconds)

    def close(self) -> None:
        self.send(list(self.channels), {"end": True})
        for channel in self.channels.values():
            channel.flush()
            channel.close()
