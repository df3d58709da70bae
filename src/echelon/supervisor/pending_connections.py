"""Connections that are not assigned to an agent yet: in the handshake, or before their first message."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field

from echelon.wire.channel import Channel, ChannelClosed, Handshake
from echelon.wire.messages import AgentMessage, parse_agent_message

HANDSHAKE_SECONDS = 10.0


@dataclass
class PendingConnections:
    token: bytes
    limit: int
    """The most connections at a time: unauthenticated connections must not use up the descriptors."""
    handshakes: dict[int, tuple[Handshake, float]] = field(default_factory=dict)
    """Connections in the handshake, with their deadlines, by descriptor."""
    unidentified: dict[int, tuple[Channel, float]] = field(default_factory=dict)
    """Authenticated connections that have not sent Hello, with their deadlines, by descriptor."""

    def channels(self) -> list[Channel]:
        return [channel for channel, _ in self.unidentified.values()]

    def accept(self, listener: socket.socket) -> None:
        """Accepts one connection and starts its handshake. Closes the connection if there are too many."""
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        if len(self.handshakes) + len(self.unidentified) >= self.limit:
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.handshakes[sock.fileno()] = (Handshake(sock, self.token), time.monotonic() + HANDSHAKE_SECONDS)
        except OSError:
            sock.close()

    def add_channel(self, channel: Channel, seconds: float) -> None:
        """Adds a channel that needs no handshake. Its first message is due within `seconds`."""
        self.unidentified[channel.fileno()] = (channel, time.monotonic() + seconds)

    def receive(self, readable: set[int]) -> list[tuple[Channel, list[AgentMessage]]]:
        """Advances the handshakes. Returns and removes the channels that have sent messages.

        A channel without messages is closed by its peer, invalid or late: the caller closes it.
        """
        for fd, (handshake, deadline) in list(self.handshakes.items()):
            self._advance_handshake(fd, handshake, deadline, fd in readable)
        done: list[tuple[Channel, list[AgentMessage]]] = []
        for fd, (channel, deadline) in list(self.unidentified.items()):
            messages, is_closed = _read_messages(channel)
            if messages or is_closed or time.monotonic() > deadline:
                del self.unidentified[fd]
                done.append((channel, messages))
        return done

    def _advance_handshake(self, fd: int, handshake: Handshake, deadline: float, is_readable: bool) -> None:
        try:
            channel = handshake.advance() if is_readable else None
            failed = channel is None and time.monotonic() > deadline
        except ChannelClosed:
            channel, failed = None, True
        if failed:
            handshake.sock.close()
        if failed or channel is not None:
            del self.handshakes[fd]
        if channel is not None:
            self.unidentified[fd] = (channel, deadline)

    def postpone_deadlines(self, seconds: float) -> None:
        self.handshakes = {fd: (one, deadline + seconds) for fd, (one, deadline) in self.handshakes.items()}
        self.unidentified = {fd: (one, deadline + seconds) for fd, (one, deadline) in self.unidentified.items()}

    def close(self) -> None:
        for channel in self.channels():
            channel.close()
        for handshake, _ in self.handshakes.values():
            handshake.sock.close()


def _read_messages(channel: Channel) -> tuple[list[AgentMessage], bool]:
    """The messages that have arrived, and whether the channel is closed or sent invalid data."""
    try:
        return [parse_agent_message(wire) for wire in channel.receive()], False
    except (ChannelClosed, ValueError):
        return [], True
