"""The process that starts a node's ranks: it imports torch once and forks each rank, warm.

With --cold, and for commands that are not Python, it forks and executes a new program instead. It is the ranks'
parent either way: it alone signals them, reaps them, and adopts and ends whatever they leave behind.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import re
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echelon.environments import CONTAINERS
from echelon.job import Job, Script
from echelon.node import cold, kinship, processes
from echelon.node.as_main import run_as_main
from echelon.node.node_dir import NodeDir
from echelon.node.orders import receive_order, send_order
from echelon.node.project import job_here
from echelon.node.wake import wake_on
from echelon.run_dir import RunDir

BUILDS_DDP = re.compile(
    r"DistributedDataParallel|\bDDP\b|fully_shard|FSDP|torch\.compile|\.wrap\(|Trainer|[Aa]ccelerat"
)
SWEEP_SECONDS = 5.0


def main(link_fd: int, parent: int, run_path: Path, node_path: Path) -> None:
    """In a forked rank this returns, or raises, as the user's script does."""
    kinship.die_with_parent(parent)
    for signum in cold.FOR_THE_AGENT:
        signal.signal(signum, signal.SIG_IGN)
    job = job_here(RunDir(run_path))
    link = socket.socket(fileno=link_fd)
    node_dir = NodeDir(node_path)
    if job.warm:
        trouble = _import_torch(job)
        if trouble is not None:
            send_order(link, {"is": "trouble", **trouble}, wait=True)
    starter = Starter(link=link, job=job, node_dir=node_dir)
    order = starter.serve()
    if order is None:
        os._exit(0)  # an interpreter with torch in it takes half a second to tidy up, for nothing
    _run(job, order, node_dir)


def _import_torch(job: Job) -> dict[str, str] | None:
    """Import only: a started OpenMP pool, a process group or a CUDA context would not survive the fork."""
    try:
        for name in ("torch", "torch.distributed", *_what_the_script_will_want(job.script)):
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  a broken install raises anything: OSError for a missing library
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        return {
            "what": f"this Python has no torch: {job.python}"
            if absent
            else f"torch cannot be imported by {job.python}",
            "why": f"{type(error).__name__}: {error}",
            "hint": _where_torch_is(job),
        }
    gc.collect()
    gc.freeze()  # the forked ranks share these pages as long as nobody writes to them
    return None


def _where_torch_is(job: Job) -> str:
    if job.environment in CONTAINERS:
        return "an --image with torch in it, or --python PATH for another Python of this one; --cold needs no torch"
    return "--python PATH names another one; --cold starts ranks that need no torch"


def _what_the_script_will_want(script: Script) -> tuple[str, ...]:
    """DDP imports torch._dynamo when it is first built, which takes as long as torch itself: better once than in
    every rank and at every restart. A guess by the script's words; a wrong one costs time and nothing else."""
    try:
        text = Path(script.target).read_text(errors="replace")
    except OSError:
        return ()
    return ("torch._dynamo",) if BUILDS_DDP.search(text) else ()


@dataclass
class Starter:
    link: socket.socket
    job: Job
    node_dir: NodeDir
    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Living ranks: pid and generation by rank."""
    store: int | None = None
    """The pid of the rendezvous store, where this node has it."""
    launcher: int | None = None
    """The pid of what starts the ranks, where that is not for us to do."""
    patience: float = 0.0
    """How long it is given to leave by itself."""

    def serve(self) -> dict[str, Any] | None:
        """Takes orders until the agent is gone; in a forked rank, returns the order that made it."""
        kinship.adopt_orphans()
        kinship.stay_without_parent()
        wake = wake_on(signal.SIGCHLD)
        self._say("ready")
        while True:
            readable, _, _ = select.select([self.link.fileno(), wake], [], [])
            if wake in readable:
                os.read(wake, 4096)
            self._reap()
            if self.link.fileno() not in readable:
                continue
            received = receive_order(self.link)
            if received is None:
                self._end_everything()
                return None
            order, fds = received
            if self._obey(order, fds):
                os.close(wake)
                return order

    def _obey(self, order: dict[str, Any], fds: list[int]) -> bool:
        """True in the process that was forked to carry the order out."""
        match order["is"]:
            case "rank":
                return self._fork_rank(order, fds[0])
            case "store":
                return self._fork_store(order, fds[0])
            case "signal":
                self._signal(order["ranks"], order["signal"], order["group"])
            case "launch":
                return self._fork_launcher(order, fds[0])
            case "sweep":
                self._sweep(order["patience"])
                self._say("swept", generation=order["generation"])
        return False

    def _say(self, kind: str, **order: Any) -> None:
        try:
            send_order(self.link, {"is": kind, **order}, wait=True)  # the agent never waits for us, so we may
        except OSError:
            pass  # the agent is gone; the next receive says so

    def _fork_rank(self, order: dict[str, Any], output: int) -> bool:
        pid = self._forked()
        if pid == 0:
            cold.connect_output(output)
            return True
        os.close(output)
        self.ranks[order["rank"]] = (pid, order["generation"])
        self._say("started", rank=order["rank"], pid=pid, generation=order["generation"])
        return False

    def _fork_store(self, order: dict[str, Any], listener: int) -> bool:
        """The rendezvous store, in a process of its own: it outlives rank 0 and listens on one address only."""
        pid = self._forked()
        if pid == 0:
            order["listener"] = listener
            return True
        os.close(listener)
        self.store = pid
        return False

    def _fork_launcher(self, order: dict[str, Any], output: int) -> bool:
        pid = self._forked()
        if pid == 0:
            cold.connect_output(output)
            return True
        os.close(output)
        self.launcher, self.patience = pid, order["patience"]
        return False

    def _forked(self) -> int:
        """0 in the child, which is no starter any more."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            kinship.die_with_parent(parent)
            os.close(signal.set_wakeup_fd(-1))
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.link.close()
        return pid

    def _signal(self, ranks: list[int], signum: int, group: bool) -> None:
        for rank in ranks:
            if rank in self.ranks:  # not yet reaped, so the number is still its own
                pid, _ = self.ranks[rank]
                (processes.send_group_signal if group else processes.send_signal)(pid, signum)

    def _reap(self) -> None:
        for pid, code in processes.reaped():
            self._report(pid, code)

    def _report(self, pid: int, code: int) -> None:
        if pid == self.store:
            self.store = None
            self._say("store_died")
        if pid == self.launcher:
            self.launcher = None
            self._say("launcher_left", code=code)
        for rank, (known, generation) in list(self.ranks.items()):
            if known == pid:
                del self.ranks[rank]
                self._say("exited", rank=rank, generation=generation, code=code, time=time.time())

    def _sweep(self, patience: float) -> None:
        """Ends every process that the ranks left behind; killing a parent hands us its children, so look again.

        With patience a launcher may leave by itself: it has something to tidy up on other hosts, and there ranks may
        still be in their grace.
        """
        self.store = None  # it ends here as it should
        deadline = time.monotonic() + patience
        while self.launcher is not None and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)
        deadline = time.monotonic() + SWEEP_SECONDS
        while time.monotonic() < deadline:
            processes.kill_descendants(os.getpid())
            self._reap()
            if not processes.children(os.getpid()):
                return
            time.sleep(0.002)

    def _end_everything(self) -> None:
        self._sweep(self.patience)
        self.node_dir.remove()


def _run(job: Job, order: dict[str, Any], node_dir: NodeDir) -> None:
    if order["is"] == "store":
        _be_the_store(order)
        return
    if order["is"] == "launch":
        _be_the_launcher(order)
    cold.hear_signals()
    os.environ.update(order["env"])
    os.umask(order["umask"])
    os.chdir(job.inner_cwd)
    if job.warm:
        _reseed()
        run_as_main(job.script, node_dir.error(order["rank"]), node_dir.stacks(order["rank"]))
    else:
        cold.execute(cold.argv(job, order["rank"], node_dir))


def _be_the_store(order: dict[str, Any]) -> None:
    distributed = importlib.import_module("torch.distributed")
    store = distributed.TCPStore(
        order["address"],
        order["port"],
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=order["listener"],
        use_libuv=True,
    )
    while store is not None:
        signal.pause()


def _be_the_launcher(order: dict[str, Any]) -> None:
    """What a scheduler sends to every process of a job is the agent's to answer, and would be the launcher's death:
    torchrun dies of USR1 and leaves its ranks, and ends them all at a TERM that they could have outlived."""
    signal.pthread_sigmask(signal.SIG_BLOCK, cold.SHIELDED)
    for name in order["without"]:
        os.environ.pop(name, None)
    os.environ.update(order["env"])
    cold.execute(tuple(order["argv"]))


def _reseed() -> None:
    """Forked ranks must not share random numbers that separate interpreters would not share."""
    random.seed()
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
