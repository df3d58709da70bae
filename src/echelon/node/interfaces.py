"""Addresses and network interfaces of this machine: decided once, by routes, never by matching names."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from echelon.errors import EnvironmentProblem

SIOCGIFADDR = 0x8915
DISCARD_PORT = 9
LOOPBACK = "127."


def address_of(interface: str) -> str:
    """Its IPv4 address; raises EnvironmentProblem."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise EnvironmentProblem(
                f"no interface {interface} with an address on {socket.gethostname()}",
                origin="--interface",
                why=str(error.strerror),
                hint=f"there is {', '.join(name for _, name in socket.if_nameindex())}",
            ) from error
    return socket.inet_ntoa(answer[20:24])


def interface_of(address: str) -> str | None:
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if _address_or_none(name) == address), None)


def routed_address(peer: str) -> str | None:
    """The address from which this machine would talk to the peer. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((peer, DISCARD_PORT))
        except OSError:
            return None
        return str(sock.getsockname()[0])


def resolved(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None


def own_address(peers: Iterable[str], interface: str | None) -> str:
    """The one address of this machine that its peers can reach; raises EnvironmentProblem."""
    if interface is not None:
        return address_of(interface)
    names = list(peers)
    if not names:
        return "127.0.0.1"
    for peer in filter(None, map(resolved, names)):
        address = None if peer.startswith(LOOPBACK) else routed_address(peer)
        if address is not None and not address.startswith(LOOPBACK):
            return address
    address = _address_of_the_default_route()
    if address is not None:
        return address
    raise EnvironmentProblem(
        f"no way from {socket.gethostname()} to the other nodes was found",
        why=f"none of these names leads to an address that is not of this machine itself: {', '.join(names[:8])}",
        hint="--interface NAME says which network the nodes share; ip addr lists them",
    )


def _address_of_the_default_route() -> str | None:
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


def variables_for(address: str, interface: str | None) -> dict[str, str]:
    """What gloo and NCCL must be told to use the same network; nothing where they find it by themselves.

    Gloo takes the address that this host's own name resolves to: on many machines 127.0.1.1, or another network's.
    """
    if interface is None:
        if address.startswith(LOOPBACK) or resolved(socket.gethostname()) == address:
            return {}
        interface = interface_of(address)
    # NCCL takes a bare name for the beginning of one: eth1 would be eth10 too
    return {} if interface is None else {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
