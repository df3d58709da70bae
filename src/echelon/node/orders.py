"""Orders between an agent and its starter: JSON over a local socket, with the file descriptors they are about."""

from __future__ import annotations

import array
import errno
import json
import os
import socket
from typing import Any

MAX_ORDER_BYTES = 1 << 17


class Outbox:
    """Orders for a process that may have its hands full: they wait here, never the one who gives them."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._waiting: list[tuple[dict[str, Any], tuple[int, ...]]] = []
        self.is_open = False
        """Until it is, everything waits."""

    def put(self, order: dict[str, Any], *fds: int) -> None:
        self._waiting.append((order, tuple(map(os.dup, fds))))
        self.send()

    def send(self) -> None:
        while self.is_open and self._waiting:
            message, fds = self._waiting[0]
            try:
                send_order(self._link, message, fds)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    return  # too many descriptors are under way: later
                self.drop()  # the other side is gone; listening to it says so
                return
            self._waiting.pop(0)
            for fd in fds:
                os.close(fd)

    @property
    def is_busy(self) -> bool:
        return self.is_open and bool(self._waiting)

    def drop(self) -> None:
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()


def send_order(link: socket.socket, order: dict[str, Any], fds: tuple[int, ...] = (), *, wait: bool = False) -> None:
    """Raises BlockingIOError where it would have to wait and may not."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    flags = 0 if wait else socket.MSG_DONTWAIT  # socket.send_fds drops its flags, hence sendmsg
    link.sendmsg([json.dumps(order).encode()], rights, flags)


def receive_order(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next order with the file descriptors that came along; None at the end."""
    try:
        data, fds = _received(link)
    except ConnectionResetError:  # it left with orders unread; what it had said before that is still there
        data, fds = _received(link)
    return (json.loads(data), fds) if data else None


def _received(link: socket.socket) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(link, MAX_ORDER_BYTES, 2)
    return data, fds
