"""The hosts of a PBS job: one task of PBS for each agent, and a successor where Slurm would requeue."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.batch_facts import PBS
from echelon.command import typed
from echelon.errors import EnvironmentProblem, SchedulerError
from echelon.job import Job
from echelon.node import succession
from echelon.node.carried import sent_along
from echelon.node.hosts import Host, Hosts, Question
from echelon.node.hosts.batch_job import BatchHosts, patiently, reserve_of
from echelon.node.hosts.pbs_tools import ask, ask_for_standing, find_tool
from echelon.node.interfaces import own_address
from echelon.run_dir import RunDir
from echelon.sealed import KEY_VARIABLE

WAYS = ("pbs_tmrsh", "pbsdsh", "ssh")
"""What starts a task on another host, best first."""


def hosts(job: Job, run_path: Path, environ: Mapping[str, str]) -> Hosts:
    return PbsHosts(job, RunDir(run_path), environ)


def read_nodefile(environ: Mapping[str, str]) -> list[str]:
    """Its lines, one for each MPI process, in the order of the chunks; raises EnvironmentProblem."""
    name = environ.get("PBS_NODEFILE", "")
    origin = f"PBS_NODEFILE={name}"
    try:
        lines = Path(name).read_text().split() if name else []
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem("the list of hosts cannot be read", origin=origin, why=str(error)) from error
    if not lines:
        hint = "run this inside of a PBS job, on its first host"
        raise EnvironmentProblem("PBS names no hosts", origin=origin, hint=hint)
    return lines


def names_of(job: Job, lines: Sequence[str]) -> list[str]:
    """The hosts that this job uses, in the order of PBS. Pure."""
    names = list(dict.fromkeys(lines))
    wanted = job.resources.all_nodes
    if job.scheduler == "allocation" and len(names) >= job.resources.smallest:
        return names[:wanted]
    if len(names) != wanted:
        raise EnvironmentProblem(
            f"PBS gave {len(names)} of the {wanted} hosts that were asked for",
            why=f"PBS_NODEFILE names {', '.join(names)}; chunks are packed onto one host where nothing forbids it",
            hint="-l place=scatter keeps them apart; with --pbs-dialect totals, ask for whole nodes",
        )
    return names


def task_argv(way: str, tool: str, host: str, index: int, argv: Sequence[str]) -> list[str]:
    """One task on one host; `index` is the host's first line in PBS_NODEFILE. Pure."""
    match way:
        case "pbs_tmrsh":
            return [tool, host, *argv]
        case "pbsdsh":
            return [tool, "-n", str(index), "--", *argv]
        case _:
            return [tool, "-n", "-o", "BatchMode=yes", host, typed(argv)]


def printing_to(output: Path, argv: Sequence[str]) -> list[str]:
    """What a task prints goes nowhere, or into a file of PBS's own: why an agent could not start is said with the rest
    of the job. Pure."""
    return ["/bin/sh", "-c", 'if [ -w "$0" ]; then exec >>"$0" 2>&1; fi; exec "$@"', str(output), *argv]


class PbsHosts(BatchHosts):
    early_seconds = 0.0  # PBS gives no notice of its own

    def __init__(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._job = job
        self._run_dir = run_dir
        self._environ = dict(environ)
        self._id = environ.get("PBS_JOBID", "")
        self._lines = read_nodefile(environ)
        self._qstat = find_tool("qstat", environ)
        self.requeues_here = job.scheduler == "allocation"
        self.carried: Mapping[str, str] | None = sent_along(environ)
        self.reserve_seconds = reserve_of(job)
        self.all: Sequence[Host] = [Host(name=name) for name in names_of(job, self._lines)]

    def listen_address(self) -> str:
        """The job script, and so we, are on the first host."""
        return own_address((host.name for host in self.all[1:]), self._job.interface)

    def start(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """In our session, on purpose: PBS ends sessions, and whatever has left them goes on for ever."""
        if node > 0:
            argv = self._task(self.all[node].name, printing_to(self._run_dir.job_output, argv))
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=self._environ)

    def _task(self, host: str, argv: Sequence[str]) -> list[str]:
        for way in WAYS:
            tool = find_tool(way, self._environ)
            if tool is not None:
                return task_argv(way, tool, host, self._lines.index(host), argv)
        why = f"none of {', '.join(WAYS)} is on PATH or in PBS_EXEC/bin"
        raise EnvironmentProblem(f"nothing here starts a process on {host}", why=why)

    def ask(self) -> Question | None:
        if self._qstat is None or not self._id:
            return None
        return ask_for_standing(self._qstat, self._id, self._environ)

    def requeue(self, lost: Sequence[str]) -> None:  # noqa: ARG002  PBS cannot be told to leave hosts out
        patiently(lambda: submit_successor(self._run_dir, self._environ), "PBS")


def submit_successor(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    """The same script once more, after this job, unless somebody did it before us. Raises Unreachable."""
    if not succession.is_followed(environ["PBS_JOBID"], run_dir.read_native_id()):
        _submit(run_dir, environ)
    if run_dir.cancel_mark.exists():  # it was for the job that ran then
        _withdraw(run_dir.read_native_id(), environ)


def _submit(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    sealed = ("-v", KEY_VARIABLE) if KEY_VARIABLE in environ else ()
    options = ["-W", f"depend=afterany:{environ['PBS_JOBID']}", *sealed]
    try:
        successor = ask("qsub", [*options, str(run_dir.job_script)], PBS.outside(environ)).split()[-1]
    except (subprocess.CalledProcessError, IndexError) as error:
        raise SchedulerError(
            "no successor of this job can be submitted",
            why=getattr(error, "stderr", "").strip() or "qsub named no job",
            hint="echelon resume {run}, from a login node",
        ) from error
    run_dir.write(run_dir.native_id, f"{successor}\n".encode())


def _withdraw(successor: str, environ: Mapping[str, str]) -> None:
    try:
        ask("qdel", [successor], PBS.outside(environ))
    except subprocess.CalledProcessError as refusal:
        print(f"the run was cancelled, and its successor {successor} is not deleted: {refusal.stderr}", flush=True)
