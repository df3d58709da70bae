"""A port for the rendezvous: bound first, then published, so that nobody else can have it."""

from __future__ import annotations

import errno
import socket

from echelon.errors import EnvironmentProblem
from echelon.plan import parse_ports


def bind(address: str, ports: str | None) -> socket.socket:
    """A socket bound to one address, on any free port or on the first free one of the range."""
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
        f"every port of {ports} is taken on {address}",
        origin=f"--ports {ports}",
        why="Address already in use",
        hint="--ports with a wider range, or without --ports any free port will do",
    )


def hold(sock: socket.socket) -> None:
    """Keeps the port from everyone but a server that sets SO_REUSEADDR, as torch's store does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


class Held:
    """Ports that are kept until a store of torch's listens on them."""

    def __init__(self) -> None:
        self._socks: list[socket.socket] = []

    def take(self, address: str, ports: str | None) -> int:
        sock = bind(address, ports)
        self._socks.append(sock)  # taken before the next one is looked for
        return int(sock.getsockname()[1])

    def share(self) -> None:
        """Not before all are taken: two that may be shared could be one."""
        for sock in self._socks:
            hold(sock)

    def release(self) -> None:
        while self._socks:
            self._socks.pop().close()
