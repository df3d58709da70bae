"""One machine of the test cluster: a tree of processes in namespaces of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import running
from daemons import Daemon
from reach import Bind, Cover, Overlay

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEADLINE_SECONDS = 30
LOCAL_FOLDERS = ("tmp", "var/tmp", "dev/shm")


class ClusterError(Exception):
    """A part of the cluster did not start or restart. The message ends with its logs."""


class Process(NamedTuple):
    pid: int  # as the machine counts, so that a test can signal it
    command: str
    mark: str | None  # its TEST_MARK variable


@dataclass(frozen=True)
class Plan:
    name: str
    address: str
    mounts: list[Cover | Bind | Overlay]
    gpus: int = 0
    daemons: list[Daemon] = field(default_factory=list)

    def as_json(self, **open_files: int) -> str:
        kinds = {Cover: [], Bind: ["bind"], Overlay: ["overlay"]}
        steps = [[*step, *kinds[type(step)]] for step in self.mounts]
        return json.dumps({**asdict(self), "mounts": steps, **open_files})


class Node:
    def __init__(self, plan: Plan, logs: Path) -> None:
        self.plan = plan
        self.logs = logs
        self.own: set[int] = set()  # the daemons: what runs when the node has just come up
        self.furniture: set[Path] = set()  # and what lies in its temporary folders then
        self._holder: subprocess.Popen | None = None
        self._ready = -1
        self._init = 0

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def is_on(self) -> bool:
        """Off from before the first of its processes ends: none of them is ever seen to have ended by itself."""
        return self._init != 0 and self._holder.poll() is None

    def start(self, switch: int) -> None:
        """Starts the node and plugs it into the switch, whose pid is given; `wait_ready` is the other half.

        The kernel ends the node with the thread that called this, so call it from one that lives as long.
        """
        self._ready, ready = os.pipe()
        network = os.open(f"/proc/{switch}/ns/net", os.O_RDONLY)
        apart = ["unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        init = [sys.executable, "-I", "-S", str(Path(__file__).with_name("node_init.py"))]
        with (self.logs / f"{self.name}.init.log").open("ab") as log:
            self._holder = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *apart, *init],
                env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[ready, network],
                start_new_session=True,
                cwd="/",
            )
        with self._holder.stdin as plan:
            plan.write(self.plan.as_json(ready=ready, switch=network).encode())
        os.close(ready)
        os.close(network)

    def wait_ready(self) -> None:
        heard = bool(select.select([self._ready], [], [], DEADLINE_SECONDS)[0]) and os.read(self._ready, 64)
        if heard != b"ready\n":
            self.power_off()
            raise ClusterError(f"node {self.name} did not come up\n{self.log_tails()}")
        self._init = self._first_child()
        self.own = {process.pid for process in self.processes()}
        self.furniture = set(self._lying_about())

    def _first_child(self) -> int:
        """The first process of the node, as the machine counts; 0 before there is one."""
        holder = self._holder.pid
        children = Path(f"/proc/{holder}/task/{holder}/children").read_text().split()
        return int(children[0]) if children else 0

    def power_off(self) -> None:
        """At once, with everything on it: the kernel ends a pid namespace together with its first process."""
        if self._holder is None:
            return
        self._init = 0
        if self._holder.poll() is None:
            # the holder sees its child end and follows; without one it is still on its way there
            os.kill(self._first_child() or self._holder.pid, signal.SIGKILL)
        self._holder.wait()
        os.close(self._ready)
        self._holder = None

    def entry(self, *, user: str, cwd: Path) -> list[str]:
        """What to put before a command so that it runs on this node."""
        if not self._init:
            raise ClusterError(f"node {self.name} is off")
        inside = ["nsenter", f"--target={self._init}", "--mount", "--uts", "--ipc", "--net", "--pid", f"--wdns={cwd}"]
        return inside if user == "root" else [*inside, "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]

    def processes(self, machine: dict[str, list[int]] | None = None) -> list[Process]:
        """`machine` is what `pids_by_namespace` returned, if the caller asks several nodes."""
        return [found for pid in self._pids(machine) if (found := _look_at(pid))]

    def _pids(self, machine: dict[str, list[int]] | None = None) -> list[int]:
        namespace = _pid_namespace(self._init) if self._init else None
        return (pids_by_namespace() if machine is None else machine).get(namespace or "", [])

    def called(self, *words: str) -> list[Process]:
        """Those whose command line contains one of the words."""
        return [process for process in self.processes() if any(word in process.command for word in words)]

    def leftovers(self, machine: dict[str, list[int]] | None = None) -> list[Process]:
        """Processes that are not daemons of the node and not helpers of Slurm's daemons.

        slurmstepd runs for minutes more if it cannot report the end of its step. slurmctld 24.11 listens before it
        forks slurmscriptd, so the set of daemons may lack that one.
        """
        others = (found for pid in self._pids(machine) if pid not in self.own and (found := _look_at(pid)))
        return [process for process in others if not is_slurm_helper(process.command)]

    def debris(self) -> list[Path]:
        """What was put into the node's own temporary folders since it came up, and is still there."""
        return [path for path in self._lying_about() if path not in self.furniture]

    def _lying_about(self) -> list[Path]:
        root = Path(f"/proc/{self._init}/root")
        if not self._init:
            return []
        return [Path("/") / path.relative_to(root) for name in LOCAL_FOLDERS for path in (root / name).iterdir()]

    def log_tails(self, lines: int = 25) -> str:
        files = sorted(self.logs.glob(f"{self.name}.*.log"))
        tails = ["\n".join(file.read_text(errors="replace").splitlines()[-lines:]) for file in files]
        return "\n".join(f"--- {file.name}\n{tail}" for file, tail in zip(files, tails, strict=True))


class OnNode(subprocess.Popen):
    """A command on a node. Signals go to the command itself, not to the nsenter that waits for it here."""

    def send_signal(self, sig: int) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.poll() is None and time.monotonic() < deadline:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            if children:
                os.kill(int(children[0]), sig)
                return
            time.sleep(0.005)


def wait_for(condition, what: str, seconds: float = DEADLINE_SECONDS):
    """Polls until the condition holds, and returns its value."""
    return running.wait_for(condition, what, seconds, every=0.05, failure=ClusterError)


def is_slurm_helper(command: str) -> bool:
    return command.startswith("slurmstepd: [") or command.endswith(": slurmscriptd")


def end(process: Process) -> None:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def pids_by_namespace() -> dict[str, list[int]]:
    """All processes of the machine. One look serves all nodes, because tests look often."""
    found: dict[str, list[int]] = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        if namespace := _pid_namespace(pid):
            found.setdefault(namespace, []).append(pid)
    return found


def _pid_namespace(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return None  # it has left meanwhile


def _look_at(pid: int) -> Process | None:
    folder = Path(f"/proc/{pid}")
    try:
        if "State:\tZ" in (folder / "status").read_text():
            return None
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        environ = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    mark = next((entry[len(b"TEST_MARK=") :].decode() for entry in environ if entry.startswith(b"TEST_MARK=")), None)
    return Process(pid, command, mark)
