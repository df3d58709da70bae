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
