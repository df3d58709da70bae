"""A real Slurm cluster on one machine, for tests and measurements: a login node `ctl` and compute nodes n1, n2, ...

Every node lives in namespaces of its own (network, host name, mounts, shared memory, processes), joined by a bridge in
one more. The machine's own network, /etc and permissions are not touched, and whatever happens to the process that
made the cluster, the cluster ends with it. Needs root, and Debian's slurm and munge.

    with Cluster() as cluster:
        print(cluster.run("ctl", ["srun", "-N2", "hostname"]).stdout)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from node import SYSTEM_PATH, ClusterError, Daemon, Node, OnNode, Plan, Process, end, wait_for
from reach import Bind, Cover, python_folders, reach
from slurm_conf import STATE, slurm_files

USER, UID = "alice", 5001
PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "unshare", "setpriv")
OWN_FOLDERS = {Path("/tmp"): "1777", Path("/var/tmp"): "1777", Path("/run"): "755"}
SECRETS = ("shadow*", "gshadow*", "ssh_host_*", "private", "munge.key")
SWITCH = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up && echo ready && exec sleep infinity"


def missing() -> str | None:
    """Why there can be no cluster here, in words, or None."""
    if os.geteuid() != 0:
        return "a cluster of namespaces needs root"
    absent = [program for program in PROGRAMS if not shutil.which(program, path=SYSTEM_PATH)]
    return f"not installed: {', '.join(absent)}" if absent else None


class Cluster:
    def __init__(self, nodes: int = 4, *, cpus: int = 8, gpus: int = 4, extra_conf: str = "") -> None:
        """`extra_conf` is added to slurm.conf. Nothing happens before `up`."""
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.cpus, self.gpus, self.extra_conf = cpus, gpus, extra_conf
        self.addresses = {name: f"10.77.0.{10 + i}" for i, name in enumerate(["ctl", *self.names])}
        self.nodes: dict[str, Node] = {}
        self.cut_off: set[str] = set()
        self._switch: subprocess.Popen | None = None

    def __enter__(self):
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    # Up and down

    def up(self) -> Cluster:
        reason = missing()
        if reason:
            raise ClusterError(reason)
        try:
            self._make_folders()
            self._start_switch()
            self.nodes = {name: Node(self._plan(name), self.logs) for name in self.addresses}
            self._boot("ctl")
            self._boot(*self.names)
            self.wait_idle()
            self._check_python()
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        for node in self.nodes.values():
            node.power_off()
        if self._switch:
            self._switch.kill()
            self._switch.communicate()
        self.nodes, self._switch = {}, None
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            del self.folder

    def _make_folders(self) -> None:
        _remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix="echelon-cluster-", dir="/var/tmp"))
        self._lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.folder.chmod(0o755)
        self.logs, self.shared = self.folder / "log", self.folder / "shared"
        self.home = self.shared / "home" / USER
        for path in (self.logs, self.home, self.folder / "state"):
            path.mkdir(parents=True)
        os.chown(self.home, UID, UID)
        shutil.chown(self.folder / "state", "slurm", "slurm")
        self._make_etc()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)

    def _make_etc(self) -> None:
        """A copy as a whole: a file that is bound alone comes loose when somebody replaces it on the machine."""
        etc = self.folder / "etc"
        ignore = shutil.ignore_patterns(*SECRETS)
        shutil.copytree("/etc", etc, symlinks=True, ignore=ignore, ignore_dangling_symlinks=True)
        etc.chmod(0o755)
        hosts = [f"{address} {name}" for name, address in self.addresses.items()]
        for name, text in {"hosts": "\n".join(["127.0.0.1 localhost", *hosts, ""]), "resolv.conf": ""}.items():
            (etc / name).unlink(missing_ok=True)
            (etc / name).write_text(text)
        with (etc / "passwd").open("a") as passwd, (etc / "group").open("a") as group:
            passwd.write(f"{USER}:*:{UID}:{UID}::{self.home}:/bin/bash\n")
            group.write(f"{USER}:*:{UID}:\n")
        shutil.rmtree(etc / "slurm", ignore_errors=True)
        (etc / "slurm").mkdir()
        files = slurm_files(
            addresses=self.addresses, cpus=self.cpus, gpus=self.gpus, accounting=False, extra=self.extra_conf
        )
        for name, text in files.items():
            (etc / "slurm" / name).write_text(text)

    def _start_switch(self) -> None:
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", SWITCH]
        self._switch = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": SYSTEM_PATH}, start_new_session=True
        )
        said = self._switch.stdout.readline()
        if said != b"ready\n":
            raise ClusterError(f"the switch did not come up: {said.decode()}")

    def _plan(self, name: str) -> Plan:
        folders = [*python_folders(), PROJECT, self.shared]
        mounts: list[Cover | Bind] = [*reach(folders, OWN_FOLDERS), Bind(str(self.folder / "etc"), "/etc")]
        mounts += [Bind(str(self.logs), "/run/log"), Cover("/run/munge", "755")]
        mounts.append(Bind(str(self.folder / "munge.key"), "/run/munge.key"))
        if name == "ctl":
            mounts.append(Bind(str(self.folder / "state"), STATE))
            slurm = Daemon(["slurmctld", "-D", "-i"], "/run/log/ctl.slurmctld.log", 6817)
        else:
            slurm = Daemon(["slurmd", "-D"], f"/run/log/{name}.slurmd.log", 6818)
        gpus = 0 if name == "ctl" else self.gpus
        return Plan(name, self.addresses[name], mounts, gpus, [self._munged(name), slurm])

    def _munged(self, name: str) -> Daemon:
        files = {"key": "/run/munge.key", "socket": "/run/munge/munge.socket.2", "pid": "/run/munged.pid"}
        files["seed"] = "/run/munged.seed"
        options = [f"--{kind if kind == 'socket' else f'{kind}-file'}={path}" for kind, path in files.items()]
        return Daemon(["munged", "--foreground", "--force", *options], f"/run/log/{name}.munged.log", files["socket"])

    def _check_python(self) -> None:
        result = self.run("n1", [sys.executable, "-c", "import echelon"], check=False)
        if result.returncode != 0:
            raise ClusterError(f"{USER} cannot run {sys.executable} with echelon on n1\n{result.stderr}")

    # What happens to nodes

    def boot(self, *names: str) -> None:
        """Powers nodes on and returns when their daemons answer; `wait_idle` waits until Slurm has them again."""
        self._boot(*names)

    def _boot(self, *names: str) -> None:
        for name in names:
            self.nodes[name].start(self._switch.pid)
        for name in names:
            self.nodes[name].wait_ready()

    def power_off(self, name: str) -> None:
        """As if the plug were pulled: no dying process says goodbye to its peers."""
        self._link("set", f"p-{name}", "down")
        self.nodes[name].power_off()
        self._link("delete", f"p-{name}")

    def cut(self, name: str) -> None:
        """Takes the node off the network; it runs on, alone."""
        self._link("set", f"p-{name}", "down")
        self.cut_off.add(name)

    def heal(self, name: str) -> None:
        self._link("set", f"p-{name}", "up")
        self.cut_off.discard(name)

    def _link(self, *words: str) -> None:
        argv = ["nsenter", f"--target={self._switch.pid}", "--net", "ip", "link", *words]
        subprocess.run(argv, check=True, env={"PATH": SYSTEM_PATH})

    def restore(self) -> None:
        """Every node on, plugged in and known to Slurm as working, whatever a test did to them."""
        for name in sorted(self.cut_off):
            self.heal(name)
        self.boot(*(name for name, node in self.nodes.items() if not node.is_on))

    # Commands

    def popen(
        self,
        node: str,
        argv: Sequence[str | Path],
        *,
        user: str = USER,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options,
    ) -> OnNode:
        home = self.home if user == USER else Path("/root")
        entry = self.nodes[node].entry(user=user, cwd=cwd or home)
        environ = {**self.environ(user), **(env or {})}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return OnNode([*entry, *map(str, argv)], env=environ, **{**streams, **options})

    def run(self, node: str, argv: Sequence[str | Path], *, timeout: float = 60, check: bool = True, **options):
        """A command's CompletedProcess; with `check`, an AssertionError that shows what it printed, if it failed."""
        process = self.popen(node, argv, **options)
        with process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        if check:
            assert process.returncode == 0, f"{list(map(str, argv))} on {node}: {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def environ(self, user: str = USER) -> dict[str, str]:
        """What a login gives: nothing of the caller's, but the Python of the tests first on PATH."""
        home = str(self.home) if user == USER else "/root"
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return {
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "PATH": path,
            **kept,
        }

    def make_folder(self) -> Path:
        """A fresh folder in the user's home, which all nodes see."""
        folder = Path(tempfile.mkdtemp(prefix="test-", dir=self.home))
        os.chown(folder, UID, UID)
        return folder

    # What Slurm and the nodes say

    def states(self) -> dict[str, str]:
        """Each compute node's state as sinfo spells it: idle, mixed, allocated, down*, ..."""
        result = self.run("ctl", ["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"], user="root", check=False)
        return dict(line.split() for line in result.stdout.splitlines())

    def wait_idle(self, seconds: float = 60) -> None:
        idle = dict.fromkeys(self.names, "idle")
        try:
            wait_for(lambda: self.states() == idle, "every node to be idle", seconds)
        except ClusterError as error:
            busy = [name for name, state in self.states().items() if state != "idle"]
            tails = "\n".join(self.nodes[name].log_tails() for name in ["ctl", *busy])
            raise ClusterError(f"{error}, but they are {self.states()}\n{tails}") from None

    def wait_state(self, name: str, state: str, seconds: float = 60) -> None:
        """Waits until sinfo's word for the node starts so; an added * means that it does not answer."""
        wait_for(lambda: self.states().get(name, "").startswith(state), f"{name} to be {state}", seconds)

    def jobs(self) -> list[str]:
        """The ids of all jobs that are not over."""
        return self.run("ctl", ["squeue", "-h", "-o", "%A"], user="root").stdout.split()

    def cancel_all(self) -> None:
        if jobs := self.jobs():
            self.run("ctl", ["scancel", *jobs], user="root")
            wait_for(lambda: not self.jobs(), f"jobs {jobs} to end")

    def processes(self, name: str) -> list[Process]:
        return self.nodes[name].processes()

    def leftovers(self) -> dict[str, list[Process]]:
        """By node, whatever runs there and is not a daemon of the node; empty when nothing does."""
        return {name: left for name, node in self.nodes.items() if (left := node.leftovers())}

    def end_leftovers(self) -> None:
        for processes in self.leftovers().values():
            for process in processes:
                end(process)

    def debris(self) -> dict[str, list[Path]]:
        """By node, what lies in its own temporary folders and was not there when it came up."""
        return {name: found for name, node in self.nodes.items() if (found := node.debris())}


def _remove_abandoned() -> None:
    """Folders of clusters whose makers were killed: nobody holds their locks any more."""
    for folder in Path("/var/tmp").glob("echelon-cluster-*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue  # being made, or being removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
