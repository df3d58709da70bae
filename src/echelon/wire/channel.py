"""The channel between supervisor and agent: small JSON messages, each after its length, over two file descriptors.

Over TCP both ends first prove that they know the run's token (HMAC challenge, never a pickle). Over ssh the
connection itself authenticates them.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import struct
from collections.abc import Iterable
from typing import Any

from echelon.untrusted import parse_json

HEADER = struct.Struct(">I")
MAX_MESSAGE_BYTES = 64 << 20
MAX_READS = 64
NONCE_BYTES = 32
PROOF_BYTES = 32


class ChannelClosed(Exception):  # noqa: N818  an end, not an error
    """The other side closed the connection or sent invalid data."""


class Channel:
    """Non-blocking: `receive` returns what has arrived, `send` queues what does not fit yet."""

    def __init__(
        self, read_fd: int, write_fd: int, sock: socket.socket | None = None, *, prologue: bytes = b""
    ) -> None:
        """Ignores everything up to the end of `prologue`: a login shell may print text before the first message.

        `sock` is the socket of the descriptors. `close` closes it.
        """
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._sock = sock
        self._prologue = prologue
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @classmethod
    def from_socket(cls, sock: socket.socket) -> Channel:
        return cls(sock.fileno(), sock.fileno(), sock=sock)

    def fileno(self) -> int:
        return self._read_fd

    @property
    def write_fd(self) -> int:
        return self._write_fd

    @property
    def unsent_bytes(self) -> int:
        return len(self._outgoing)

    @property
    def local_address(self) -> str:
        """This machine's address on the network to the other side. Empty without a socket."""
        return "" if self._sock is None else str(self._sock.getsockname()[0])

    def send(self, message: dict[str, Any]) -> None:
        payload = json.dumps(message).encode()
        self.send_raw(HEADER.pack(len(payload)) + payload)

    def send_raw(self, data: bytes) -> None:
        """Sends bytes that are no message: the other side reads them before the first message."""
        self._outgoing += data
        self.flush()

    def flush(self) -> None:
        """Sends as much as possible without blocking. Ignores a closed connection: `receive` reports it."""
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._write_fd, self._outgoing)]
        except OSError:
            pass  # the buffer is full, or the connection is closed

    def receive(self) -> list[dict[str, Any]]:
        """The complete messages that have arrived.

        Raises ChannelClosed for invalid data, and at the end of the connection after the last message was returned.
        """
        closed = self._read_available()
        messages = []
        while (payload := self._next_payload()) is not None:
            messages.append(_parse_message(payload))
        if closed and not messages:
            raise ChannelClosed("end of file")
        return messages

    def _read_available(self) -> bool:
        """Reads the available bytes. True at the end of the connection.

        Reads at most MAX_READS times, so that a fast sender cannot fill the memory.
        """
        try:
            for _ in range(MAX_READS):
                chunk = os.read(self._read_fd, 1 << 16)
                if not chunk:
                    return True
                self._incoming += chunk
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    def _next_payload(self) -> bytes | None:
        if (self._prologue and not self._skip_prologue()) or len(self._incoming) < HEADER.size:
            return None
        (length,) = HEADER.unpack_from(self._incoming)
        if length > MAX_MESSAGE_BYTES:
            raise ChannelClosed(f"message too large: {length} bytes")
        end = HEADER.size + length
        if len(self._incoming) < end:
            return None
        payload = bytes(self._incoming[HEADER.size : end])
        del self._incoming[:end]
        return payload

    def _skip_prologue(self) -> bool:
        found = self._incoming.find(self._prologue)
        if found < 0:
            del self._incoming[: max(0, len(self._incoming) - len(self._prologue))]
            return False
        del self._incoming[: found + len(self._prologue)]
        self._prologue = b""
        return True

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        else:
            os.close(self._read_fd)
            if self._write_fd != self._read_fd:
                os.close(self._write_fd)


def poll_events(channels: Iterable[Channel]) -> dict[int, int]:
    """Poll events by descriptor: readable for every channel, and writable for a channel with unsent bytes."""
    events: dict[int, int] = {}
    for channel in channels:
        events[channel.fileno()] = events.get(channel.fileno(), 0) | select.POLLIN | select.POLLHUP
        if channel.unsent_bytes:
            events[channel.write_fd] = events.get(channel.write_fd, 0) | select.POLLOUT
    return events


def _parse_message(payload: bytes) -> dict[str, Any]:
    try:
        message = parse_json(payload)
    except ValueError as error:
        raise ChannelClosed(f"not a message: {error}") from error
    if not isinstance(message, dict):
        raise ChannelClosed(f"not a message: {message!r:.100}")
    return message


def _proof(token: bytes, side: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token, side + nonce, "sha256")


def store_key(token: bytes, attempt: int, generation: int) -> str:
    """The key that the ranks of one generation sign their messages with. It does not reveal the token."""
    return hmac.digest(token, f"store/{attempt}/{generation}".encode(), "sha256").hex()


class Handshake:
    """The supervisor's half of the handshake on one connection. Never blocks."""

    def __init__(self, sock: socket.socket, token: bytes) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._token = token
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._received = bytearray()
        sock.send(self._nonce)

    def advance(self) -> Channel | None:
        """A channel after a valid proof; None while the proof is incomplete. Raises ChannelClosed if it is invalid."""
        wanted = PROOF_BYTES + NONCE_BYTES
        try:
            chunk = self.sock.recv(wanted - len(self._received))
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        self._received += chunk
        if not chunk:
            raise ChannelClosed("the agent closed the connection during the handshake")
        if len(self._received) < wanted:
            return None
        proof, nonce = bytes(self._received[:PROOF_BYTES]), bytes(self._received[PROOF_BYTES:])
        if not hmac.compare_digest(proof, _proof(self._token, b"agent", self._nonce)):
            raise ChannelClosed("the agent does not have this run's token")
        try:
            self.sock.send(_proof(self._token, b"supervisor", nonce))
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        return Channel.from_socket(self.sock)


def connect(address: str, port: int, token: bytes, timeout: float, source: str = "") -> Channel:
    """Connects and performs the agent's half of the handshake. Raises OSError or ChannelClosed."""
    sock = connect_socket(address, port, token, timeout, source)
    sock.settimeout(None)
    return Channel.from_socket(sock)


def connect_socket(address: str, port: int, token: bytes, timeout: float, source: str = "") -> socket.socket:
    """An authenticated socket, with the timeout. Raises OSError or ChannelClosed."""
    sock = socket.create_connection((address, port), timeout=timeout, source_address=(source, 0) if source else None)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _authenticate(sock, token)
    except (OSError, ChannelClosed):
        sock.close()
        raise
    return sock


def _authenticate(sock: socket.socket, token: bytes) -> None:
    nonce = secrets.token_bytes(NONCE_BYTES)
    theirs = _receive_exactly(sock, NONCE_BYTES)
    sock.sendall(_proof(token, b"agent", theirs) + nonce)
    answer = _receive_exactly(sock, PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(token, b"supervisor", nonce)):
        raise ChannelClosed("the supervisor does not have this run's token")


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ChannelClosed("the supervisor closed the connection")
        data += chunk
    return data
