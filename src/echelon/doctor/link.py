"""Measures one connection between two nodes: TCP, latency, bandwidth, and packets of full size over UDP."""

from __future__ import annotations

import hmac
import json
import select
import socket
import struct
import time
from pathlib import Path
from typing import Any

from echelon.record import record
from echelon.system.network import interface_of
from echelon.untrusted import parse_json
from echelon.wire.channel import ChannelClosed, Handshake, connect_socket

CONNECT_SECONDS = 2.5
ACCEPT_SECONDS = CONNECT_SECONDS + 0.5
STALL_SECONDS = 3.0
SEND_SECONDS = 0.2
PINGS = 20
CHUNK = bytes(1 << 18)
BUFFER_BYTES = 1 << 20
UDP_HEADERS = 28
"""Bytes of the headers of IPv4 and UDP."""
PACKET_SIZES = (576, 1280, 1400, 1500, 2044, 4092, 9000)
"""IP packets to try, up to the MTU of the sender."""
TAG_BYTES = 16
MTU_DISCOVER, MTU_DO = 10, 2  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: never fragment
ANSWER = struct.Struct(">I")


@record
class Endpoint:
    """Where a node can be reached. Its sockets are bound to this address only."""

    address: str
    tcp_port: int
    udp_port: int


def open_sockets(address: str) -> tuple[Endpoint, socket.socket, socket.socket]:
    """A listening TCP socket and a UDP socket on any free port of the address. Raises OSError."""
    listener = socket.create_server((address, 0), backlog=8)
    packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    packets.bind((address, 0))
    endpoint = Endpoint(address=address, tcp_port=listener.getsockname()[1], udp_port=packets.getsockname()[1])
    return endpoint, listener, packets


def mtu_of(address: str) -> int | None:
    """The MTU of the interface with this address."""
    name = "lo" if address.startswith("127.") else interface_of(address)
    try:
        return int(Path(f"/sys/class/net/{name}/mtu").read_text())
    except (OSError, ValueError):
        return None


def tag(token: bytes, size: int) -> bytes:
    return hmac.digest(token, f"doctor/{size}".encode(), "sha256")[:TAG_BYTES]


# The side that connects


def measure(peer: Endpoint, own: str, token: bytes) -> dict[str, Any]:
    """Connects and measures. A failure is a fact: its stage and the error."""
    facts: dict[str, Any] = {"stage": "connect"}
    try:
        began = time.monotonic()
        with connect_socket(peer.address, peer.tcp_port, token, CONNECT_SECONDS, own) as sock:
            facts["connect_seconds"] = time.monotonic() - began
            sock.settimeout(STALL_SECONDS)
            facts["stage"] = "latency"
            facts["latency"] = _measure_latency(sock)
            facts["stage"] = "packets"
            facts |= _send_packets(sock, peer, own, token)
            facts["stage"] = "bandwidth"
            facts["bandwidth"] = _measure_bandwidth(sock)
            facts["stage"] = "done"
    except (OSError, ChannelClosed, ValueError) as error:
        facts["problem"] = str(error)[:200] or type(error).__name__
    return facts


def _measure_latency(sock: socket.socket) -> float:
    """Half of the shortest round trip, in seconds."""
    trips = []
    for _ in range(PINGS):
        began = time.monotonic()
        sock.sendall(b"p")
        _receive(sock, 1)
        trips.append(time.monotonic() - began)
    return min(trips) / 2


def _send_packets(sock: socket.socket, peer: Endpoint, own: str, token: bytes) -> dict[str, Any]:
    """Sends packets of growing size that routers must not fragment. The peer answers which arrived."""
    mtu = mtu_of(own)
    largest = min(mtu or 1500, PACKET_SIZES[-1])
    sizes = sorted({size for size in (*PACKET_SIZES, largest) if size <= largest})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets:
        packets.bind((own, 0))
        packets.setsockopt(socket.IPPROTO_IP, MTU_DISCOVER, MTU_DO)
        for size in sizes * 2:
            try:
                packets.sendto(tag(token, size).ljust(size - UDP_HEADERS, b"\0"), (peer.address, peer.udp_port))
            except OSError:
                pass  # longer than the path allows, as the kernel knows already
    sock.sendall(b"u")
    answer = parse_json(_receive_block(sock))
    arrived = sorted(size for size in answer if size in sizes)
    return {"largest_sent": largest, "path_mtu": arrived[-1] if arrived else 0}


def _measure_bandwidth(sock: socket.socket) -> float:
    """Bytes per second, as the receiver counted them."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    sock.sendall(b"b")
    until = time.monotonic() + SEND_SECONDS
    while time.monotonic() < until:
        sock.sendall(CHUNK)
    sock.shutdown(socket.SHUT_WR)
    answer = parse_json(_receive_block(sock))
    return float(answer["bytes"]) / max(1e-6, float(answer["seconds"]))


def _receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ChannelClosed("the other node closed the connection")
        data += chunk
    return data


def _receive_block(sock: socket.socket) -> bytes:
    (length,) = ANSWER.unpack(_receive(sock, ANSWER.size))
    if length > 1 << 16:
        raise ChannelClosed("not an answer")
    return _receive(sock, length)


# The side that listens


def serve(listener: socket.socket, packets: socket.socket, token: bytes, seconds: float) -> dict[str, Any]:
    """Answers one peer that knows the token."""
    try:
        with _accept(listener, token, time.monotonic() + seconds) as sock:
            sock.settimeout(STALL_SECONDS)
            while True:
                match sock.recv(1):
                    case b"p":
                        sock.sendall(b"p")
                    case b"u":
                        _answer(sock, _arrived_sizes(packets, token))
                    case b"b":
                        _answer(sock, _count_bytes(sock))
                        return {}
                    case _:
                        return {}
    except (OSError, ChannelClosed) as error:
        return {"problem": str(error)[:200] or type(error).__name__}


def _accept(listener: socket.socket, token: bytes, deadline: float) -> socket.socket:
    """The first connection that proves that it knows the token. Raises TimeoutError."""
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        sock, _ = listener.accept()
        try:
            handshake = Handshake(sock, token)
            while handshake.advance() is None:
                if not select.select([sock], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise ChannelClosed("no handshake in time")
        except (OSError, ChannelClosed):
            sock.close()
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    raise TimeoutError("no connection in time")


def _arrived_sizes(packets: socket.socket, token: bytes) -> list[int]:
    found = set()
    while select.select([packets], [], [], 0.05)[0]:
        data = packets.recv(1 << 16)
        size = len(data) + UDP_HEADERS
        if hmac.compare_digest(data[:TAG_BYTES], tag(token, size)):
            found.add(size)
    return sorted(found)


def _count_bytes(sock: socket.socket) -> dict[str, float]:
    total, buffer = 0, bytearray(1 << 20)
    began = time.monotonic()
    while count := sock.recv_into(buffer):
        total += count
    return {"bytes": total, "seconds": time.monotonic() - began}


def _answer(sock: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    sock.sendall(ANSWER.pack(len(data)) + data)
