"""The nodes of a Slurm job: one srun for each agent; the job itself goes back into the queue by scontrol."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.batch_facts import WISHES_OF_THE_JOB
from echelon.environments.pyxis import container_flags
from echelon.errors import EnvironmentProblem
from echelon.job import Job
from echelon.launchers import Scope, scope_of
from echelon.node.hosts import Host, Hosts, Question
from echelon.node.hosts.batch_job import BatchHosts, patiently, reserve_of
from echelon.node.hosts.slurm_requeue import put_back
from echelon.node.hosts.slurm_tools import ask, ask_for_standing
from echelon.node.interfaces import own_address
from echelon.run_dir import RunDir
from echelon.runtime import slurm_step


def hosts(job: Job, run_path: Path, environ: Mapping[str, str]) -> Hosts:
    return SlurmHosts(job, RunDir(run_path), environ)


def names_of(job: Job, environ: Mapping[str, str]) -> list[str]:
    """The hosts that this job uses, in Slurm's order. Pure."""
    names = slurm_step.hosts(environ, ("SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    if len(names) < job.resources.smallest:
        raise EnvironmentProblem(
            f"the allocation has {len(names)} of the {job.resources.nodes} nodes that the job needs",
            origin=f"SLURM_JOB_NODELIST={environ.get('SLURM_JOB_NODELIST', '')}",
            hint=f"-N {len(names)} fits it" if names else "run this inside of a Slurm job",
        )
    return names[: job.resources.all_nodes]


def cpus_of(environ: Mapping[str, str], node: int, asked: int | None) -> int | None:
    """srun does not inherit them since 22.05: what was asked for, or else all that the job has on that node."""
    if asked is not None:
        return asked
    try:
        counts = slurm_step.parse_tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    except ValueError:
        return None
    return counts[node] if node < len(counts) else None


def srun_argv(job: Job, host: str, cpus: int | None, argv: Sequence[str], container: Sequence[str] = ()) -> list[str]:
    """One task on one host that shares whatever the job has there. Pure."""
    options = [
        *("--overlap", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mpi=none", "--input=none", "--export=ALL"),
        *("--nodes=1", "--ntasks=1", f"--nodelist={host}", "--mem=0"),
    ]
    if cpus is not None:
        options.append(f"--cpus-per-task={cpus}")
    if job.resources.gpus_per_node:
        options.append(f"--gpus-per-node={job.resources.gpus_per_node}")
    return ["srun", *options, *container, *argv]


class SlurmHosts(BatchHosts):
    carried: Mapping[str, str] | None = None
    early_seconds = 65.0  # it looks every 30 s, and adds a margin

    def __init__(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._job = job
        self._run_dir = run_dir
        self._environ = {name: value for name, value in environ.items() if name not in WISHES_OF_THE_JOB}
        self._cpus = environ
        self._id = environ.get("SLURM_JOB_ID", "")
        self._restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
        self.requeues_here = job.scheduler == "allocation"
        self.reserve_seconds = reserve_of(job)
        self.all: Sequence[Host] = [Host(name=name) for name in names_of(job, environ)]
        self._container = () if scope_of(job) is Scope.JOB else container_flags(job, run_dir.path, environ)

    def listen_address(self) -> str:
        ours = {self._environ.get("SLURMD_NODENAME"), socket.gethostname(), socket.gethostname().partition(".")[0]}
        return own_address((host.name for host in self.all if host.name not in ours), self._job.interface)

    def start(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        cpus = cpus_of(self._cpus, node, self._job.resources.cpus)
        return subprocess.Popen(
            srun_argv(self._job, self.all[node].name, cpus, argv, self._container),
            stdin=subprocess.DEVNULL,
            env=self._environ,
            start_new_session=True,
        )

    def ask(self) -> Question | None:
        return ask_for_standing(self._id, self._restarts, self._environ)

    def requeue(self, lost: Sequence[str]) -> None:
        patiently(lambda: put_back(self._job, self._run_dir, self._environ, lost), "Slurm")


def first_host(environ: Mapping[str, str]) -> str:
    """The one that the supervisor runs on."""
    return slurm_step.hosts(environ, ("SLURM_JOB_NODELIST",))[0]


def is_down(host: str, environ: Mapping[str, str]) -> bool:
    """Whether Slurm has given it up; raises Unreachable."""
    try:
        line = ask(["scontrol", "show", "node", host, "-o"], environ)
    except subprocess.CalledProcessError:
        return False
    return "State=DOWN" in line
