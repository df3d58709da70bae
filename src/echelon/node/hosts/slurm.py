"""The nodes of a Slurm job: one srun for each agent; the job itself goes back into the queue by scontrol."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.errors import EnvironmentProblem, SchedulerError
from echelon.job import Job
from echelon.node.hosts import Dialled, Host, Question, Unreachable
from echelon.node.hosts.slurm_tools import JobQuestion, ask, parse_standing
from echelon.node.interfaces import own_address
from echelon.run_dir import RunDir
from echelon.runtime import slurm_step

LEAVE_SECONDS = 8.0  # an agent whose channel is closed ends its ranks and cleans up in less
REQUEUE_PATIENCE_SECONDS = 900.0

# What srun would read as wishes, but were the wishes of the whole job, or of the shell around us.
JOB_WIDE = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_GPU"),
    *("SLURM_NNODES", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_DISTRIBUTION", "SLURM_ARBITRARY_NODELIST"),
    *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_CPU_BIND", "SLURM_MEM_BIND"),
    *("SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_EXCLUSIVE", "SLURM_OVERLAP", "SLURM_EXPORT_ENV", "SLURM_GRES"),
)


def hosts(job: Job, run_path: Path, environ: Mapping[str, str]) -> SlurmHosts:
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


def srun_argv(job: Job, host: str, cpus: int | None, argv: Sequence[str]) -> list[str]:
    """One task on one host that shares whatever the job has there. Pure."""
    options = [
        *("--overlap", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mpi=none", "--input=none", "--export=ALL"),
        *("--nodes=1", "--ntasks=1", f"--nodelist={host}", "--mem=0"),
    ]
    if cpus is not None:
        options.append(f"--cpus-per-task={cpus}")
    if job.resources.gpus_per_node:
        options.append(f"--gpus-per-node={job.resources.gpus_per_node}")
    return ["srun", *options, *argv]


class SlurmHosts(Dialled):
    comes_back = False
    carried = None
    reserve_seconds = 0.0
    early_seconds = 65.0  # it looks every 30 s, and adds a margin

    def __init__(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> None:
        self._job = job
        self._run_dir = run_dir
        self._environ = {name: value for name, value in environ.items() if name not in JOB_WIDE}
        self._cpus = environ
        self._id = environ.get("SLURM_JOB_ID", "")
        self._restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
        self.requeues_here = job.scheduler == "allocation"
        self._leaving: list[tuple[subprocess.Popen[bytes], float]] = []
        self.all = [Host(name=name) for name in names_of(job, environ)]

    def listen_address(self) -> str:
        ours = {self._environ.get("SLURMD_NODENAME"), socket.gethostname(), socket.gethostname().partition(".")[0]}
        return own_address((host.name for host in self.all if host.name not in ours), self._job.interface)

    def start(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        cpus = cpus_of(self._cpus, node, self._job.resources.cpus)
        return subprocess.Popen(
            srun_argv(self._job, self.all[node].name, cpus, argv),
            stdin=subprocess.DEVNULL,
            env=self._environ,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:  # noqa: ARG002  not of this host
        """It leaves by itself when its channel is closed; srun would kill it, ranks, folder and all."""
        self._leaving.append((process, time.monotonic() + LEAVE_SECONDS))

    def tend(self) -> None:
        now = time.monotonic()
        for process, deadline in self._leaving:
            if process.poll() is None and now > deadline:
                process.kill()  # its step ends with it, on a host that can still be reached
        self._leaving = [entry for entry in self._leaving if entry[0].poll() is None]

    def close(self) -> None:
        while self._leaving:
            self.tend()
            time.sleep(0.02)

    def ask(self) -> Question | None:
        return JobQuestion(self._id, self._restarts, self._environ)

    # Requeueing

    def requeue(self, lost: Sequence[str]) -> None:
        deadline = time.monotonic() + REQUEUE_PATIENCE_SECONDS
        pause = 1.0
        while True:
            try:
                self._put_back(lost)
            except Unreachable as error:
                if time.monotonic() > deadline:
                    raise SchedulerError(
                        "Slurm cannot be reached, so the job is not requeued", why=str(error)
                    ) from None
            else:
                return
            time.sleep(pause)
            pause = min(pause * 2, 30.0)

    def _put_back(self, lost: Sequence[str]) -> None:
        """Unless somebody did it before us: then it is the next attempt that would be put back."""
        try:
            if parse_standing(
                ask(["scontrol", "show", "job", self._id, "-o"], self._environ), self._restarts
            ).taken_back:
                return
            ask(["scontrol", "requeue", self._id], self._environ)
        except subprocess.CalledProcessError as refusal:
            self._submit_successor(lost, refusal.stderr.strip())
            return
        if lost:
            try:
                ask(["scontrol", "update", f"JobId={self._id}", f"ExcNodeList={','.join(lost)}"], self._environ)
            except subprocess.CalledProcessError as refusal:
                print(f"Slurm would not exclude {', '.join(lost)}: {refusal.stderr.strip()}", flush=True)

    def _submit_successor(self, lost: Sequence[str], refusal: str) -> None:
        """Where requeueing is not allowed: the same script once more, after this job."""
        task = self._environ.get("SLURM_ARRAY_TASK_ID")
        options = [f"--array={task}"] if task else []
        options += [f"--exclude={','.join(lost)}"] if lost else []
        argv = ["sbatch", "--parsable", f"--dependency=afterany:{self._id}", *options, str(self._run_dir.job_script)]
        try:
            printed = ask(argv, outside(self._environ))
        except subprocess.CalledProcessError as error:
            raise SchedulerError(
                "the job can neither be requeued nor submitted again",
                why=f"{refusal}\n{error.stderr.strip()}",
                hint="echelon resume {run}, from a login node",
            ) from error
        successor = printed.strip().partition(";")[0]
        self._run_dir.write(
            self._run_dir.native_id, f"{successor}_{task}\n".encode() if task else f"{successor}\n".encode()
        )


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what belongs to the job around us."""
    ours = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI")
    return {name: value for name, value in environ.items() if name == "SLURM_CONF" or not name.startswith(ours)}


def first_host_is_down(environ: Mapping[str, str]) -> bool:
    """Whether Slurm has given up the host that the supervisor ran on; raises Unreachable."""
    first = slurm_step.hosts(environ, ("SLURM_JOB_NODELIST",))[0]
    try:
        line = ask(["scontrol", "show", "node", first, "-o"], environ)
    except subprocess.CalledProcessError:
        return False
    return "State=DOWN" in line
