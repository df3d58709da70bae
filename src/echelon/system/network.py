"""Addresses, network interfaces and free ports of this machine."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from echelon.errors import EnvironmentProblem
from echelon.placement import parse_ports

SIOCGIFADDR = 0x8915
DISCARD_PORT = 9
LOOPBACK = "127."


def address_of(interface: str) -> str:
    """The IPv4 address of an interface. Raises EnvironmentProblem."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise EnvironmentProblem(
                f"no interface {interface} with an address on {socket.gethostname()}",
                origin="--interface",
                why=str(error.strerror),
                hint=f"available: {', '.join(name for _, name in socket.if_nameindex())}",
            ) from error
    return socket.inet_ntoa(answer[20:24])


def interface_of(address: str) -> str | None:
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if _address_or_none(name) == address), None)


def source_address(peer: str) -> str | None:
    """The address from which this machine would connect to the peer. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((peer, DISCARD_PORT))
        except OSError:
            return None
        return str(sock.getsockname()[0])


def resolve_host(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None


def own_address(peers: Iterable[str], interface: str | None) -> str:
    """The address of this machine that its peers can reach. Raises EnvironmentProblem."""
    if interface is not None:
        return address_of(interface)
    names = list(peers)
    if not names:
        return "127.0.0.1"
    for peer in filter(None, map(resolve_host, names)):
        address = None if peer.startswith(LOOPBACK) else source_address(peer)
        if address is not None and not address.startswith(LOOPBACK):
            return address
    address = _default_route_address()
    if address is not None:
        return address
    raise EnvironmentProblem(
        f"{socket.gethostname()} has no address that the other nodes can reach",
        why=f"these names do not resolve to an address of another machine: {', '.join(names[:8])}",
        hint="--interface NAME selects the network of the nodes; ip addr lists the interfaces",
    )


def _default_route_address() -> str | None:
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return None
    names = [fields[0] for fields in map(str.split, lines) if len(fields) > 1 and fields[1] == "00000000"]
    addresses = filter(None, map(_address_or_none, names))
    return next(addresses, None)


def _address_or_none(interface: str) -> str | None:
    try:
        return address_of(interface)
    except EnvironmentProblem:
        return None


def network_variables(address: str, interface: str | None) -> dict[str, str]:
    """Variables that make gloo and NCCL use the network of `address`. Empty if they choose it by themselves.

    Gloo uses the address that this host's own name resolves to: on many machines 127.0.1.1, or that of another network.
    """
    if interface is None:
        if address.startswith(LOOPBACK) or resolve_host(socket.gethostname()) == address:
            return {}
        interface = interface_of(address)
    # NCCL treats a bare name as a prefix: eth1 would also match eth10
    return {} if interface is None else {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}


def bind(address: str, ports: str | None) -> socket.socket:
    """A socket bound to the address, on any free port or on the first free port of the range `ports`.

    Raises EnvironmentProblem.
    """
    for port in parse_ports(ports) if ports else (0,):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((address, port))
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise EnvironmentProblem(
                f"cannot bind {address}:{port}", origin="--ports" if ports else None, why=str(error.strerror)
            ) from error
        return sock
    raise EnvironmentProblem(
        f"all ports {ports} are in use on {address}",
        origin=f"--ports {ports}",
        why="Address already in use",
        hint="use a wider --ports range, or omit --ports to use any free port",
    )


def allow_reuse(sock: socket.socket) -> None:
    """Keeps the port free for a server that sets SO_REUSEADDR, as torch's store does. No other process can bind it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


class ReservedPorts:
    """Ports that are reserved until torch's stores listen on them."""

    def __init__(self) -> None:
        self._socks: list[socket.socket] = []

    def reserve(self, address: str, ports: str | None) -> int:
        sock = bind(address, ports)
        self._socks.append(sock)  # stays bound, so that the next call finds another port
        return int(sock.getsockname()[1])

    def make_reusable(self) -> None:
        """Lets torch's stores bind the ports. Call after all ports are reserved: otherwise two calls of `reserve` could
        return the same port."""
        for sock in self._socks:
            allow_reuse(sock)

    def release(self) -> None:
        while self._socks:
            self._socks.pop().close()
