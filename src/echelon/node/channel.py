"""The channel between supervisor and agent: small JSON messages, each behind its length, over any two file descriptors.

Over TCP both ends first prove that they know the run's token (HMAC challenge, never a pickle); over ssh the
connection itself is the proof.
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

HEADER = struct.Struct(">I")
MAX_MESSAGE_BYTES = 64 << 20
MOST_READS = 64
NONCE_BYTES = 32
PROOF_BYTES = 32


class ChannelClosed(Exception):  # noqa: N818  an end, not an error
    """The other side has gone, or said something that no version of it would say."""


class Channel:
    """Non-blocking: `receive` returns what has arrived, `send` queues what does not fit yet."""

    def __init__(
        self, read_fd: int, write_fd: int, keep: socket.socket | None = None, *, prologue: bytes = b""
    ) -> None:
        """Messages begin after the prologue: what comes before it, a shell on the way may have said."""
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._keep = keep
        self._prologue = prologue
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @classmethod
    def over(cls, sock: socket.socket) -> Channel:
        return cls(sock.fileno(), sock.fileno(), keep=sock)

    def fileno(self) -> int:
        return self._read_fd

    @property
    def write_fd(self) -> int:
        return self._write_fd

    @property
    def unsent_bytes(self) -> int:
        return len(self._outgoing)

    @property
    def own_address(self) -> str:
        """This machine's address on the network that leads to the other side; none where there is no network."""
        return "" if self._keep is None else str(self._keep.getsockname()[0])

    def send(self, message: dict[str, Any]) -> None:
        payload = json.dumps(message).encode()
        self.send_raw(HEADER.pack(len(payload)) + payload)

    def send_raw(self, data: bytes) -> None:
        """Not a message: what the other side reads before it speaks in messages."""
        self._outgoing += data
        self.flush()

    def flush(self) -> None:
        """Sends what the other side will take now; a closed other side shows up in `receive`."""
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._write_fd, self._outgoing)]
        except OSError:
            pass  # full for now, or closed for good

    def receive(self) -> list[dict[str, Any]]:
        """Every whole message that has arrived; ChannelClosed once there are none left and never will be."""
        closed = self._fill()
        messages = []
        while (payload := self._next_payload()) is not None:
            messages.append(_parsed(payload))
        if closed and not messages:
            raise ChannelClosed("end of file")
        return messages

    def _fill(self) -> bool:
        """Whether the end has come. Takes a bite at a time, so that one that never pauses does not fill the memory."""
        try:
            for _ in range(MOST_READS):
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
            raise ChannelClosed(f"a message of {length} bytes")
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
        if self._keep is not None:
            self._keep.close()
        else:
            os.close(self._read_fd)
            if self._write_fd != self._read_fd:
                os.close(self._write_fd)


def interests(channels: Iterable[Channel]) -> dict[int, int]:
    """What to poll for: the words of each, and room to write where something is unsent."""
    events: dict[int, int] = {}
    for channel in channels:
        events[channel.fileno()] = events.get(channel.fileno(), 0) | select.POLLIN | select.POLLHUP
        if channel.unsent_bytes:
            events[channel.write_fd] = events.get(channel.write_fd, 0) | select.POLLOUT
    return events


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload)
    except ValueError as error:
        raise ChannelClosed(f"not a message: {error}") from error
    if not isinstance(message, dict):
        raise ChannelClosed(f"not a message: {message!r:.100}")
    return message


def _proof(token: bytes, side: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token, side + nonce, "sha256")


class Doorman:
    """The supervisor's half of the handshake, one stranger at a time, without ever waiting for one."""

    def __init__(self, sock: socket.socket, token: bytes) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._token = token
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._heard = bytearray()
        sock.send(self._nonce)

    def admit(self) -> Channel | None:
        """A channel once the stranger has proved itself, None while it has yet to; ChannelClosed if it cannot."""
        wanted = PROOF_BYTES + NONCE_BYTES
        try:
            chunk = self.sock.recv(wanted - len(self._heard))
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        self._heard += chunk
        if not chunk:
            raise ChannelClosed("left before proving itself")
        if len(self._heard) < wanted:
            return None
        proof, nonce = bytes(self._heard[:PROOF_BYTES]), bytes(self._heard[PROOF_BYTES:])
        if not hmac.compare_digest(proof, _proof(self._token, b"agent", self._nonce)):
            raise ChannelClosed("does not know this run's token")
        try:
            self.sock.send(_proof(self._token, b"supervisor", nonce))
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        return Channel.over(self.sock)


def dial(address: str, port: int, token: bytes, timeout: float, source: str = "") -> Channel:
    """The agent's half of the handshake; raises OSError or ChannelClosed."""
    sock = socket.create_connection((address, port), timeout=timeout, source_address=(source, 0) if source else None)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _prove(sock, token)
    except (OSError, ChannelClosed):
        sock.close()
        raise
    sock.settimeout(None)
    return Channel.over(sock)


def _prove(sock: socket.socket, token: bytes) -> None:
    nonce = secrets.token_bytes(NONCE_BYTES)
    theirs = _receive_exactly(sock, NONCE_BYTES)
    sock.sendall(_proof(token, b"agent", theirs) + nonce)
    answer = _receive_exactly(sock, PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(token, b"supervisor", nonce)):
        raise ChannelClosed("the supervisor does not know this run's token")


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ChannelClosed("the supervisor hung up")
        data += chunk
    return data
