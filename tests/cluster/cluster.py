"""A real Slurm cluster on one machine, for tests and measurements: a login node `ctl` and compute nodes n1, n2, ...

Every node lives in namespaces of its own (network, host name, mounts, shared memory, processes), joined by a bridge in
one more. The machine's own network, /etc and permissions are not touched, and whatever happens to the process that
made the cluster, the cluster ends with it. Needs root, and Debian's slurm and munge.

    with Cluster() as cluster:
        print(cluster.run("ctl", ["srun", "-N2", "hostname"]).stdout)
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import conf
import daemons
from folder import UID, USER, Folder
from node import SYSTEM_PATH, ClusterError, Node, OnNode, Plan, Process, end, pids_by_namespace, wait_for
from reach import Bind, Cover, Overlay, python_folders, reach
from running import patience

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "unshare", "setpriv", "sshd", "ssh-keygen")
OWN_FOLDERS = {Path("/tmp"): "1777", Path("/var/tmp"): "1777", Path("/run"): "755"}
SWITCH = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up && echo ready && exec sleep infinity"


def missing() -> str | None:
    """Why there can be no cluster here, in words, or None."""
    if os.geteuid() != 0:
        return "a cluster of namespaces needs root"
    absent = [program for program in PROGRAMS if not shutil.which(program, path=SYSTEM_PATH)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    attempt = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True
    )
    return f"root may not make namespaces here: {attempt.stderr.decode().strip()}" if attempt.returncode else None


class Cluster:
    def __init__(
        self,
        nodes: int = 4,
        *,
        ssh_hosts: int = 0,
        cpus: int = 8,
        gpus: int = 4,
        accounting: bool = False,
        extra_conf: str = "",
        slurm: Path | None = None,
    ) -> None:
        """Compute nodes n1, n2, ...; h1, h2, ... are hosts with sshd, separate homes and disks, outside Slurm.

        Without compute nodes there is no Slurm. `extra_conf` is added to slurm.conf. `slurm` is a tree with another Slurm
        than the machine's (tools/slurm_tree.py). Nothing happens before `up`.
        """
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.hosts = [f"h{i + 1}" for i in range(ssh_hosts)]
        self.cpus, self.gpus, self.accounting, self.extra_conf = cpus, gpus, accounting, extra_conf
        self.addresses = {"ctl": "10.77.0.10"}
        self.addresses |= {name: f"10.77.0.{11 + i}" for i, name in enumerate(self.names)}
        self.addresses |= {name: f"10.77.0.{101 + i}" for i, name in enumerate(self.hosts)}
        self.slurm = slurm
        self.nodes: dict[str, Node] = {}
        self.cut_off: set[str] = set()
        self._folder: Folder | None = None
        self._switch: subprocess.Popen | None = None

    def __enter__(self):
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    # Up and down

    def up(self) -> Cluster:
        """Call it from a thread that lives as long as the cluster shall: the kernel ends the nodes with it."""
        reason = missing()
        if reason:
            raise ClusterError(reason)
        try:
            self._make_folder()
            self._start_switch()
            self.nodes = {name: Node(self._plan(name), self._folder.logs) for name in self.addresses}
            self.boot("ctl")
            self.boot(*self.names, *self.hosts)
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
        if self._folder:
            self._folder.remove()
        self.nodes, self._switch, self._folder = {}, None, None

    @property
    def home(self) -> Path:
        """The user's, on all nodes of the cluster; the same path is another folder on each ssh host."""
        return self._folder.home

    @property
    def shared(self) -> Path:
        return self._folder.shared

    @property
    def scratch(self) -> Path:
        """The one folder of the user's that ssh hosts share with the cluster."""
        return self._folder.scratch

    def home_of(self, host: str) -> Path:
        """Where the home of an ssh host lies on the machine."""
        return self._folder.private_home(host)

    def _make_folder(self) -> None:
        self._folder = Folder()
        slurm = {name: address for name, address in self.addresses.items() if name not in self.hosts}
        extra = self.extra_conf + (conf.ACCOUNTING if self.accounting else "")
        files = conf.slurm_files(addresses=slurm, cpus=self.cpus, gpus=self.gpus, extra=extra)
        if self.accounting:
            files |= {"slurm/slurmdbd.conf": conf.SLURMDBD, "slurm/accounts.sql": conf.ACCOUNTS}
        self._folder.write_etc(self.addresses, {**files, "ssh/sshd_config": conf.SSHD})
        for host in self.hosts:
            self._folder.make_ssh_host(host)

    def _start_switch(self) -> None:
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", SWITCH]
        self._switch = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": SYSTEM_PATH}, start_new_session=True
        )
        said = self._switch.stdout.readline()
        if said != b"ready\n":
            raise ClusterError(f"the switch did not come up: {said.decode()}")

    def _plan(self, name: str) -> Plan:
        if name == "ctl":
            accounting = daemons.accounting() if self.accounting else []
            return self._slurm_plan(name, [*accounting, daemons.slurmctld()] if self.names else [])
        if name in self.hosts:
            return self._host_plan(name)
        return self._slurm_plan(name, [daemons.slurmd()], self.gpus)

    def _slurm_plan(self, name: str, programs: list[daemons.Daemon], gpus: int = 0) -> Plan:
        mounts = self._mounts(self.shared)
        mounts += [Cover("/run/munge", "755"), Bind(str(self._folder.munge_key), daemons.MUNGE_KEY)]
        if name == "ctl":
            mounts += [Bind(str(self._folder.state), daemons.STATE), Cover("/run/mysqld", "1777")]
        return Plan(name, self.addresses[name], mounts, gpus, [daemons.munged(), *programs])

    def _host_plan(self, name: str) -> Plan:
        mounts = [*self._mounts(), Bind(str(self.home_of(name)), str(self.home)), Cover("/run/sshd", "755")]
        mounts.append(Bind(str(self._folder.host_key(name)), daemons.HOST_KEY))
        mounts.append(Bind(str(self.scratch), str(self.scratch)))
        return Plan(name, self.addresses[name], mounts, self.gpus, [daemons.sshd()])

    def _mounts(self, *folders: Path) -> list[Cover | Bind | Overlay]:
        """What every node has: its own temporary folders and /etc, and a Python that its user can reach."""
        own = reach([*python_folders(), PROJECT, *folders], OWN_FOLDERS)
        return [
            *self._other_slurm(),
            *own,
            Bind(str(self._folder.etc), "/etc"),
            Bind(str(self._folder.logs), "/run/log"),
        ]

    def _other_slurm(self) -> list[Overlay | Bind]:
        """Its tree over the machine's /usr, and its plugins instead of the machine's, which it would try to load."""
        if self.slurm is None:
            return []
        plugins = self.slurm.glob("usr/lib/*/slurm-wlm")
        binds = [Bind(str(folder), f"/{folder.relative_to(self.slurm)}") for folder in plugins]
        return [Overlay(str(self.slurm / "usr"), "/usr"), *binds]

    def _check_python(self) -> None:
        result = self.run("ctl", [sys.executable, "-c", "import echelon"], check=False)
        if result.returncode != 0:
            raise ClusterError(f"{USER} cannot run {sys.executable} with echelon on a node\n{result.stderr}")

    # What happens to nodes

    def boot(self, *names: str) -> None:
        """Powers nodes on and returns when their daemons answer; `wait_idle` waits until Slurm has them again."""
        for name in names:
            self.nodes[name].start(self._switch.pid)
        for name in names:
            self.nodes[name].wait_ready()

    def power_off(self, name: str) -> None:
        """Simulates a power failure: no process on the node closes its connections."""
        self._at_switch("set", f"p-{name}", "down")
        self.shut_down(name)

    def shut_down(self, name: str) -> None:
        """All its processes end at once, and the kernel closes their connections."""
        self.nodes[name].power_off()
        self.cut_off.discard(name)
        # the kernel takes the cable away with the node, but in its own time; a boot must not meet the old one
        self._at_switch("delete", f"p-{name}", check=False, stderr=subprocess.DEVNULL)

    def cut(self, name: str) -> None:
        """Takes the node off the network; it runs on, alone."""
        self._at_switch("set", f"p-{name}", "down")
        self.cut_off.add(name)

    def heal(self, name: str) -> None:
        self._at_switch("set", f"p-{name}", "up")
        self.cut_off.discard(name)

    def _at_switch(self, *words: str, check: bool = True, **options) -> None:
        argv = ["nsenter", f"--target={self._switch.pid}", "--net", "ip", "link", *words]
        subprocess.run(argv, check=check, env={"PATH": SYSTEM_PATH}, **options)

    def stop_controller(self) -> None:
        """Ends slurmctld, which saves its state. The login node and the jobs keep running."""
        for process in self._controller():
            os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: not self._controller(), "slurmctld to end")

    def start_controller(self) -> None:
        self.run("ctl", ["slurmctld", "-i", "-L", "/run/log/ctl.slurmctld.log"], user="root")
        ping = ["scontrol", "ping"]
        wait_for(lambda: self.run("ctl", ping, check=False).returncode == 0, "slurmctld to answer")
        self.nodes["ctl"].own |= {process.pid for process in self._controller()}

    def _controller(self) -> list[Process]:
        """slurmctld and the helper that it forks, which is called so and otherwise."""
        return self.nodes["ctl"].called("slurmctld", "slurmscriptd")

    def restore(self) -> None:
        """Starts, connects and resumes all nodes after a test."""
        for name in sorted(self.cut_off):
            self.heal(name)
        self.boot(*(name for name, node in self.nodes.items() if not node.is_on))
        if self.names and not self._controller():
            self.start_controller()
        for name, state in self.states().items():
            if state.startswith("down"):  # by itself Slurm asks again only after up to a minute
                self.run("ctl", ["scontrol", "update", f"nodename={name}", "state=resume"], user="root")

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
                out, err = process.communicate(timeout=patience(timeout))
            except BaseException:
                process.kill()
                raise
        if check:
            assert process.returncode == 0, f"{list(map(str, argv))} on {node}: {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def environ(self, user: str = USER) -> dict[str, str]:
        """What a login gives: nothing of the caller's, but the Python of the tests first on PATH."""
        home = str(self.home) if user == USER else "/root"
        path = f"{Path(sys.executable).parent}:{'/usr/local/bin:/usr/bin:/bin' if user == USER else SYSTEM_PATH}"
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

    def make_folder(self, parent: Path | None = None) -> Path:
        """A new folder of the user, by default in the home folder that all nodes share."""
        folder = Path(tempfile.mkdtemp(prefix="test-", dir=parent or self.home))
        os.chown(folder, UID, UID)
        return folder

    # What Slurm and the nodes say

    def version(self) -> str:
        """Slurm's, for example 24.11.5."""
        return self.run("ctl", ["sinfo", "--version"]).stdout.split()[-1]

    def states(self) -> dict[str, str]:
        """Each compute node's state as sinfo spells it: idle, mixed, allocated, down*, ..."""
        if not self.names:
            return {}
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
        return self.run("ctl", ["squeue", "-h", "-o", "%A"], user="root").stdout.split() if self.names else []

    def cancel_all(self) -> None:
        if jobs := self.jobs():
            self.run("ctl", ["scancel", *jobs], user="root")
            wait_for(lambda: not self.jobs(), f"jobs {jobs} to end")

    def processes(self, name: str) -> list[Process]:
        return self.nodes[name].processes()

    def leftovers(self) -> dict[str, list[Process]]:
        """The processes of each node, except its daemons. Nodes without any are left out."""
        machine = pids_by_namespace()
        return {name: left for name, node in self.nodes.items() if (left := node.leftovers(machine))}

    def end_leftovers(self) -> None:
        for processes in self.leftovers().values():
            for process in processes:
                end(process)

    def debris(self) -> dict[str, list[Path]]:
        """By node, what lies in its own temporary folders and was not there when it came up."""
        return {name: found for name, node in self.nodes.items() if (found := node.debris())}

    def remove_debris(self) -> None:
        for name, paths in self.debris().items():
            self.run(name, ["rm", "-rf", *paths], user="root")
