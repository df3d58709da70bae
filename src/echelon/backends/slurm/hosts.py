"""The nodes of a Slurm job. One srun starts each agent, and scontrol requeues the job."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from echelon.backends.batch import STEP_SETTING_VARIABLES
from echelon.backends.batch_hosts import BatchHosts, end_reserve_seconds, retry_until_answered
from echelon.backends.hosts import Host, SchedulerQuery, Unreachable
from echelon.backends.slurm import Slurm
from echelon.backends.slurm.query import parse_fields
from echelon.backends.slurm.requeue import requeue_job, run_slurm, start_view_query
from echelon.backends.slurm.step import Step
from echelon.environments.pyxis import REMOVAL_SECONDS, container_flags, is_removed_after_use, runtime_environ
from echelon.errors import EnvironmentProblem
from echelon.job import Job
from echelon.launchers import Scope, launcher_scope
from echelon.run_dir import RunDir
from echelon.system import hostlist
from echelon.system.network import LOOPBACK, own_address, resolve_host
from echelon.wire.faults import Fault, Loss
from echelon.wire.reports import FatalNodeProblem

LAST_WORDS_SECONDS = 1.0
MOST_LOOKED_UP = 8
PAUSE_SECONDS = 10.0


def used_hosts(job: Job, environ: Mapping[str, str]) -> list[str]:
    """The hosts that this job uses, in Slurm's order. Raises EnvironmentProblem if they are too few. Pure."""
    names = hostlist.step_hosts(environ, ("SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    if len(names) < job.resources.smallest:
        raise EnvironmentProblem(
            f"the allocation has {len(names)} of the {job.resources.nodes} nodes that the job needs",
            origin=f"SLURM_JOB_NODELIST={environ.get('SLURM_JOB_NODELIST', '')}",
            hint=f"-N {len(names)} fits it" if names else "run this inside a Slurm job",
        )
    return names[: job.resources.all_nodes]


def cpus_on_node(environ: Mapping[str, str], node: int, asked: int | None) -> int | None:
    """CPUs for srun on a node: the requested number, or all CPUs that the job has on that node. None if unknown.

    srun of Slurm 22.05 to 23.02 does not inherit the number from the job.
    """
    if asked is not None:
        return asked
    try:
        counts = hostlist.parse_tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    except ValueError:
        return None
    return counts[node] if node < len(counts) else None


def cpu_remark(job: Job, environ: Mapping[str, str]) -> str | None:
    """A warning if a node has fewer CPUs than ranks. None if it has enough or the number is unknown."""
    try:
        counts = hostlist.parse_tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    except ValueError:
        return None
    ranks, fewest = job.resources.procs_per_node, min(counts)
    if fewest >= ranks:
        return None
    shared = f"{ranks} ranks share {fewest} {'CPU' if fewest == 1 else 'CPUs'} on each node"
    return f"{shared} (SLURM_JOB_CPUS_PER_NODE={environ['SLURM_JOB_CPUS_PER_NODE']}); try --cpus {4 * ranks}"


def srun_argv(job: Job, host: str, cpus: int | None, argv: Sequence[str], container: Sequence[str] = ()) -> list[str]:
    """The command that runs one task on one host and shares all resources that the job has there. Pure."""
    options = [
        "--overlap",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",
        "--mpi=none",
        "--input=none",
        "--export=ALL",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={host}",
        "--mem=0",
    ]
    if cpus is not None:
        options.append(f"--cpus-per-task={cpus}")
    if job.resources.gpus_per_node:
        options.append(f"--gpus-per-node={job.resources.gpus_per_node}")
    return ["srun", *options, *container, *argv]


def parse_node_addresses(text: str) -> dict[str, str]:
    """The NodeAddr of each node in `scontrol show node -o`, by its name."""
    nodes = [parse_fields(line) for line in text.splitlines()]
    return {node["NodeName"]: node["NodeAddr"] for node in nodes if node.get("NodeName") and node.get("NodeAddr")}


def addresses_or_names(
    names: Sequence[str], resolve: Callable[[str], str | None], environ: Mapping[str, str]
) -> list[str]:
    """The names of the nodes. Slurm's address replaces a name that does not resolve, or only to this machine.

    Checks only the first MOST_LOOKED_UP names: one address of a peer is enough to find the network.
    """
    unknown = [name for name in names[:MOST_LOOKED_UP] if (resolve(name) or LOOPBACK).startswith(LOOPBACK)]
    if not unknown:
        return list(names)
    try:
        addresses = parse_node_addresses(run_slurm(["scontrol", "show", "node", ",".join(unknown), "-o"], environ))
    except (Unreachable, subprocess.CalledProcessError):
        return list(names)
    return [addresses.get(name, name) if name in unknown else name for name in names]


class SlurmHosts(BatchHosts):
    early_notice_seconds = 65.0  # Slurm checks every 30 s and adds a margin

    def __init__(
        self, job: Job, run_dir: RunDir, environ: Mapping[str, str], *, keeps_allocation: bool = False
    ) -> None:
        """`keeps_allocation`: the allocation outlives the attempt, and this process starts the next one."""
        super().__init__()
        self._job = job
        self._run_dir = run_dir
        self._environ = {name: value for name, value in environ.items() if name not in STEP_SETTING_VARIABLES}
        if is_removed_after_use(job):
            self.container_removal_seconds = REMOVAL_SECONDS
        self._cpus = environ
        self._id = environ.get("SLURM_JOB_ID", "")
        self._restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
        self.requeues_in_process = keeps_allocation
        self.reserve_seconds = end_reserve_seconds(job)
        self.all: Sequence[Host] = [Host(name=name) for name in used_hosts(job, environ)]
        self._steps: dict[int, Step] = {}
        """The srun of each agent, by the pid of srun."""
        self._waited = float("-inf")
        outside = launcher_scope(job) is Scope.JOB
        self._container = () if outside else container_flags(job, run_dir.path, environ)
        self._for_enroot = {} if outside else runtime_environ(job, environ)

    def remarks(self) -> Sequence[str]:
        return tuple(filter(None, [cpu_remark(self._job, self._cpus)]))

    def listen_address(self) -> str:
        ours = {self._environ.get("SLURMD_NODENAME"), socket.gethostname(), socket.gethostname().partition(".")[0]}
        names = [host.name for host in self.all if host.name not in ours]
        if self._job.interface is None:
            names = addresses_or_names(names, resolve_host, self._environ)
        return own_address(names, self._job.interface)

    def start_agent(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        cpus = cpus_on_node(self._cpus, node, self._job.resources.cpus)
        name = self.all[node].name
        step = Step(
            name, srun_argv(self._job, name, cpus, argv, self._container), {**self._environ, **self._for_enroot}
        )
        self._steps[step.process.pid] = step
        return step.process

    def classify_loss(self, process: subprocess.Popen[bytes]) -> Loss:
        """Waits for the reason, which srun prints shortly after the agent's channel closes.

        If many agents are lost at once, waits only for the first. Longer waits delay the heartbeats, and the other
        agents would end their ranks.
        """
        step, began = self._steps.get(process.pid), time.monotonic()
        if step is None:
            return Loss.PROCESS
        patience = LAST_WORDS_SECONDS if began > self._waited + PAUSE_SECONDS else 0.0
        found = step.loss(patience)
        self._waited = time.monotonic() if time.monotonic() - began > patience / 2 else self._waited
        return found

    def agent_fault(self, process: subprocess.Popen[bytes]) -> Fault | None:
        step = self._steps.get(process.pid)
        return None if step is None else step.fault()

    def start_problem(self, process: subprocess.Popen[bytes]) -> FatalNodeProblem | None:
        step = self._steps.get(process.pid)
        return None if step is None else step.start_problem()

    def agent_output(self, process: subprocess.Popen[bytes]) -> str | None:
        """None: this copies the output to the job's output, which is searched for errors of pyxis."""
        if process.pid in self._steps:
            self._steps[process.pid].relay_all_output()
        return None

    def end_late_agents(self) -> None:
        super().end_late_agents()
        for step in self._steps.values():
            step.relay_output()

    def close(self) -> None:
        super().close()
        for step in self._steps.values():
            step.close()
        self._steps.clear()

    def start_query(self) -> SchedulerQuery | None:
        return start_view_query(self._id, self._restarts, self._environ)

    def requeue(self, lost_hosts: Sequence[str]) -> None:
        retry_until_answered(lambda: requeue_job(self._job, self._run_dir, self._environ, lost_hosts), Slurm.label)
