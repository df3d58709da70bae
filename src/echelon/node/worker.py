"""What a launcher starts in place of a rank: it checks in with the node's agent, and has the rank as its child.

So whatever starts ranks, and whatever it makes of their signals and exit codes, our agent hears, tells and ends them
as it does its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.errors import ConfigError
from echelon.node import cold, desk, kinship, processes
from echelon.node.environ import decoded
from echelon.node.orders import receive_order, send_order
from echelon.node.wake import wake_on
from echelon.runtime import detectors
from echelon.runtime.detectors import Told

DESKS = "ECHELON_DESKS"
"""The folders of all nodes, by node rank, where one launcher starts the ranks of them all."""
SWEEP_SECONDS = 2.0
DETECTORS: dict[str, Callable[[Mapping[str, str]], Told | None]] = {
    "srun": detectors.srun,
    "mpirun": detectors.open_mpi,
}
ALONE = Told(source="", rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)


def main(launcher: str) -> int:
    for signum in cold.SHIELDED:
        signal.signal(signum, signal.SIG_IGN)
    kinship.adopt_orphans()
    try:
        os.environ.update(decoded(os.environ))
        told = told_by(launcher, os.environ)
        folder, local_rank = place_of(told, os.environ)
        link = desk.connect(folder)
        send_order(link, card_of(told, local_rank, os.environ), wait=True)
        received = receive_order(link)
    except (ConfigError, OSError, ValueError) as error:
        print(f"no agent of echelon's is here for this rank: {error}", file=sys.stderr, flush=True)
        return 1
    if received is None:
        return 1  # too late, or not wanted: the agent knows, and says so
    order, (output,) = received
    child = _start(order, output, link)
    return Attendance(link, child).last()


def packed(folders: Sequence[str]) -> str:
    """As one variable, which must not be longer than 128 KiB, of however many nodes."""
    start = os.path.commonprefix(folders)  # noqa: RUF071  letter by letter is what saves most
    return json.dumps([start, [folder[len(start) :] for folder in folders]], separators=(",", ":"))


def unpacked(text: str) -> list[str]:
    start, ends = json.loads(text)
    return [start + end for end in ends]


def told_by(launcher: str, environ: Mapping[str, str]) -> Told:
    """What the launcher says of this process. Pure; raises ConfigError."""
    told = DETECTORS.get(launcher, detectors.torchrun)(environ)
    if told is None and launcher in DETECTORS:
        raise ConfigError(f"{launcher} does not say which rank this is")
    return told or ALONE  # accelerate starts a single process without a word


def place_of(told: Told, environ: Mapping[str, str]) -> tuple[Path, int]:
    """The folder of the node that this rank belongs to, and its local rank there. Pure; raises ValueError."""
    if DESKS not in environ:
        return Path(environ["ECHELON_NODE_DIR"]), told.local_rank or 0
    folders = unpacked(environ[DESKS])
    node, local_rank = divmod(told.rank, max(1, told.world_size // len(folders)))
    if node >= len(folders):
        raise ValueError(f"rank {told.rank} of {told.world_size} is beyond the {len(folders)} nodes")
    return Path(folders[node]), local_rank


def card_of(told: Told, local_rank: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """How a worker introduces itself. Pure."""
    said = f"{told.source or 'the launcher'} says rank {told.rank} of {told.world_size}"
    return {
        "is": "here", "generation": int(environ["ECHELON_GENERATION"]), "local_rank": local_rank, "rank": told.rank,
        "world_size": told.world_size, "said": said,
    }  # fmt: skip


def environ_of(order: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The launcher's variables stay, and ours are added: those that must be, and those that nobody has set. Pure."""
    inherited = {name: value for name, value in environ.items() if name != DESKS}
    return {**order["unless_set"], **inherited, **order["env"]}


def _start(order: dict[str, Any], output: int, link: socket.socket) -> int:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.setsid()
        kinship.die_with_parent(parent)
        link.close()
        cold.connect_output(output)
        cold.hear_signals()
        os.environ.update(environ_of(order, os.environ))
        os.environ.pop(DESKS, None)
        os.umask(order["umask"])
        os.chdir(order["cwd"])
        cold.execute(tuple(order["argv"]))
    os.close(output)
    return child


class Attendance:
    """From the start of a rank until its agent lets its worker go, or is gone.

    A worker outlives its rank: a launcher that sees one leave ends all the others, and when they stop is for the
    supervisor to say.
    """

    def __init__(self, link: socket.socket, child: int) -> None:
        self._link = link
        self._child = child
        self._code: int | None = None

    def last(self) -> int:
        """The rank's own code, as a shell would say it."""
        wake = wake_on(signal.SIGCHLD)
        self._say("started", pid=self._child)
        while True:
            self._reap()
            readable, _, _ = select.select([self._link.fileno(), wake], [], [])
            if wake in readable:
                os.read(wake, 4096)
            if self._link.fileno() in readable and not self._obey():
                break
        self._sweep()
        code = -signal.SIGKILL if self._code is None else self._code
        return 128 - code if code < 0 else code

    def _obey(self) -> bool:
        """False when there is nobody any more to obey."""
        received = receive_order(self._link)
        if received is None:
            return False
        order, _ = received
        if self._code is None:  # not yet reaped, so the number is still its own
            send = processes.send_group_signal if order["group"] else processes.send_signal
            send(self._child, order["signal"])
        return True

    def _say(self, kind: str, **report: Any) -> None:
        try:
            send_order(self._link, {"is": kind, **report}, wait=True)
        except OSError:
            pass  # the agent is gone; the next receive says so

    def _reap(self) -> None:
        for pid, code in processes.reaped():
            if pid == self._child:
                self._code = code
                self._say("exited", code=self._code, time=time.time())

    def _sweep(self) -> None:
        """Ends the rank if it lives, and whatever it left behind."""
        deadline = time.monotonic() + SWEEP_SECONDS
        while processes.children(os.getpid()) and time.monotonic() < deadline:
            processes.kill_descendants(os.getpid())
            self._reap()
            time.sleep(0.002)
