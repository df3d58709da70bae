"""Where the ranks of a node check in that somebody else starts: each by its worker, over a socket in the node's folder.

A worker says who it is, is told what its rank is to run, and says how that went. The end of the connection tells either
side that the other is gone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.node import processes
from echelon.node.by_folder import by_folder
from echelon.node.orders import receive_order, send_order

NAME = "desk"
PEER = struct.Struct("3i")  # pid, uid and gid, as the kernel knows them


def connect(folder: Path) -> socket.socket:
    """Raises OSError where nobody sits there."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    by_folder(folder / NAME, link.connect)
    return link


@dataclass
class Guest:
    """A worker that has come; it has a rank once it has said who it is and was told what to run."""

    link: socket.socket
    pid: int
    card: dict[str, Any] | None = None
    rank: int | None = None
    has_left: bool = False
    """Its rank has; it stays itself until it is let go."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What waits here for a worker: its rank, the order, and the end of the pipe that its output goes to."""

    rank: int
    order: dict[str, Any]
    output: int


def refusal(card: dict[str, Any], place: Place | None) -> str | None:
    """Why this worker cannot have that place, in words; there is none where a launcher counts otherwise. Pure."""
    if place is None:
        return f"{card['said']}, but local rank {card['local_rank']} is not wanted here, or here already"
    decided = place.order["decided"]
    wrong = [f"{name} {card[name]} instead of {value}" for name, value in decided.items() if card[name] != value]
    return f"{card['said']}, so a rank came as {' and '.join(wrong)}" if wrong else None


class Desk:
    def __init__(self, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        by_folder(folder / NAME, self._listener.bind)
        self._listener.listen(4096)
        self._guests: list[Guest] = []
        self._generation = -1
        self._places: dict[int, Place] = {}
        """By local rank."""

    def open(self, generation: int, places: dict[int, Place]) -> None:
        """Workers of this generation may come; some already have."""
        self._generation = generation
        self._places = places

    def readable(self, seconds: float) -> list[int]:
        """Those behind which somebody has something to say, waited for as long as this."""
        poller = select.poll()
        for fd in self.fds():
            poller.register(fd, select.POLLIN)
        return [fd for fd, _ in poller.poll(seconds * 1000)]

    def fds(self) -> list[int]:
        return [self._listener.fileno(), *(guest.link.fileno() for guest in self._guests)]

    def hear(self, readable: Iterable[int]) -> list[dict[str, Any]]:
        """What the workers behind these descriptors report, in the words of the starter."""
        ready = set(readable)
        if self._listener.fileno() in ready:
            self._accept()
        reports: list[dict[str, Any]] = []
        for guest in list(self._guests):
            if guest.link.fileno() in ready:
                reports += self._listen(guest)
        return reports + self._seat()

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        peer, uid, _ = PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        if uid != os.geteuid():
            link.close()
            return
        self._guests.append(Guest(link=link, pid=peer))

    def _listen(self, guest: Guest) -> list[dict[str, Any]]:
        received = receive_order(guest.link)
        if received is None:
            return self._gone(guest)
        report, _ = received
        if report["is"] == "here":
            guest.card = report
            return []
        guest.has_left = guest.has_left or report["is"] == "exited"
        return [{**report, "rank": guest.rank, "generation": self._generation}]

    def _gone(self, guest: Guest) -> list[dict[str, Any]]:
        """A worker that leaves before its rank has died was killed, and its rank with it."""
        self._guests.remove(guest)
        guest.link.close()
        if guest.rank is None or guest.has_left:
            return []
        killed = {"is": "exited", "code": -signal.SIGKILL, "time": time.time()}
        return [{**killed, "rank": guest.rank, "generation": self._generation}]

    def _seat(self) -> list[dict[str, Any]]:
        """Those who have said who they are get their places; those of a generation to come are kept waiting."""
        reports: list[dict[str, Any]] = []
        for guest in list(self._guests):
            if guest.card is None or guest.rank is not None or guest.card["generation"] > self._generation:
                continue
            if guest.card["generation"] < self._generation or not self._places:
                self._turn_away(guest)  # too late: all are here, or nobody is wanted any more
                continue
            place = self._places.get(guest.card["local_rank"])
            wrong = refusal(guest.card, place)
            if place is None or wrong is not None:
                self._turn_away(guest)
                reports.append({"is": "refused", "why": wrong})
                continue
            self._hand_over(guest, self._places.pop(guest.card["local_rank"]))
        return reports

    def _hand_over(self, guest: Guest, place: Place) -> None:
        guest.rank = place.rank
        self._tell(guest, place.order, place.output)
        os.close(place.output)

    def _turn_away(self, guest: Guest) -> None:
        self._guests.remove(guest)
        guest.link.close()

    # Orders

    def signal(self, ranks: Sequence[int], signum: int, *, group: bool) -> None:
        for guest in self._guests:
            if guest.rank in ranks:
                self._tell(guest, {"is": "signal", "signal": signum, "group": group})

    def _tell(self, guest: Guest, order: dict[str, Any], *fds: int) -> None:
        try:
            send_order(guest.link, order, fds)
        except OSError:
            pass  # it is gone, which the next look tells; or it was stopped, and is killed when its time is up

    def let_go(self) -> None:
        """All may leave now, and whoever comes later is turned away. A rank that still runs is killed by its worker."""
        self.forget_places()
        for guest in list(self._guests):
            if guest.card is not None and guest.card["generation"] > self._generation:
                continue
            try:
                guest.link.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # gone already

    def forget_places(self) -> None:
        for place in self._places.values():
            os.close(place.output)
        self._places = {}

    @property
    def is_empty(self) -> bool:
        return not any(guest.rank is not None for guest in self._guests)

    def kill(self) -> None:
        """Those that were let go and are still here, with all they have."""
        for guest in self._guests:
            for pid in (guest.pid, *processes.descendants(guest.pid)):
                processes.send_signal(pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Whoever is here hears the end of the connection, kills its rank and leaves; nobody is listened to."""
        self.forget_places()
        for guest in self._guests:
            guest.link.close()
        self._guests = []

    def close(self) -> None:
        self.hang_up()
        self._listener.close()
