"""Orders between an agent and its starter: JSON over a local socket, with the file descriptors they are about."""

from __future__ import annotations

import array
import json
import socket
from typing import Any

MAX_ORDER_BYTES = 1 << 17


def send_order(link: socket.socket, order: dict[str, Any], fds: tuple[int, ...] = (), *, wait: bool = False) -> None:
    """Raises BlockingIOError where it would have to wait and may not."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    flags = 0 if wait else socket.MSG_DONTWAIT  # socket.send_fds drops its flags, hence sendmsg
    link.sendmsg([json.dumps(order).encode()], rights, flags)


def receive_order(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next order with the file descriptors that came along; None at the end."""
    try:
        data, fds, _, _ = socket.recv_fds(link, MAX_ORDER_BYTES, 2)
    except ConnectionResetError:
        return None
    return (json.loads(data), fds) if data else None
