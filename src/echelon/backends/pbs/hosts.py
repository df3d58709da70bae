"""The hosts of a PBS job. Each agent is a task of PBS. A successor job replaces the requeue of Slurm."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.backends.batch import PBS
from echelon.backends.batch_hosts import (
    BatchHosts,
    QueryProcess,
    end_reserve_seconds,
    retry_until_answered,
    run_command,
)
from echelon.backends.hosts import Host, SchedulerQuery, SchedulerView
from echelon.backends.pbs import Pbs, query
from echelon.backends.pbs.environment import KEY_VARIABLE, agent_environ
from echelon.errors import EnvironmentProblem, SchedulerError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.shell import format_command
from echelon.system.network import own_address

KILLER_SECONDS = 3.0
TASK_PROGRAMS = ("pbs_tmrsh", "pbsdsh", "ssh")
"""Programs that start a task on another host, in order of preference."""
ANSWER_SECONDS = 3.0  # a host counts as lost a heartbeat timeout plus this time after its last message
CONFIGURATION = Path("/etc/pbs.conf")
DEFAULT_PREFIX = "/opt/pbs"
WAITING_STATES = ("Q", "H", "W", "T")


def read_nodefile(environ: Mapping[str, str]) -> list[str]:
    """The lines of the nodefile: one per MPI process, in the order of the chunks. Raises EnvironmentProblem."""
    name = environ.get("PBS_NODEFILE", "")
    origin = f"PBS_NODEFILE={name}"
    try:
        lines = Path(name).read_text().split() if name else []
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem("cannot read the list of hosts", origin=origin, why=str(error)) from error
    if not lines:
        hint = "run this inside a PBS job, on its first host"
        raise EnvironmentProblem("PBS lists no hosts", origin=origin, hint=hint)
    return lines


def used_hosts(job: Job, lines: Sequence[str], *, keeps_allocation: bool = False) -> list[str]:
    """The hosts that this job uses, in the order of PBS. Pure.

    With `keeps_allocation` they may be a part of the allocation. Raises EnvironmentProblem for a wrong number of hosts.
    """
    names = list(dict.fromkeys(lines))
    wanted = job.resources.all_nodes
    if keeps_allocation and len(names) >= job.resources.smallest:
        return names[:wanted]
    if len(names) != wanted:
        raise EnvironmentProblem(
            f"PBS allocated {len(names)} of the {wanted} hosts requested",
            why=f"PBS_NODEFILE names {', '.join(names)}; PBS may place several chunks on one host",
            hint="-l place=scatter puts each chunk on its own host; with --pbs-dialect totals, request whole nodes",
        )
    return names


def task_argv(program: str, tool: str, host: str, index: int, argv: Sequence[str]) -> list[str]:
    """The command that runs one task on one host. `index` is the host's first line in PBS_NODEFILE. Pure."""
    match program:
        case "pbs_tmrsh":
            return [tool, host, *argv]
        case "pbsdsh":
            return [tool, "-n", str(index), "--", *argv]
        case _:
            return [tool, "-n", "-o", "BatchMode=yes", host, format_command(argv)]


RUN_TASK = """\
if [ -w "$0" ]; then exec >>"$0" 2>&1; fi
echo $$ >"$1"
shift
exec "$@"
"""
KILL_TASK = """\
exec 2>/dev/null
read -r pid <"$0" && grep -qF -- "$1" "/proc/$pid/cmdline" && { kill -9 "-$pid" || kill -9 "$pid"; }
rm -f -- "$0"
"""


def task_command(output: Path, pid_file: Path, argv: Sequence[str]) -> list[str]:
    """Appends the output of the task to the job's output, because PBS drops it, and writes the task's pid. Pure."""
    return ["/bin/sh", "-c", RUN_TASK, str(output), str(pid_file), *argv]


def kill_command(pid_file: Path, run_path: Path) -> list[str]:
    """Kills a task if its pid still belongs to the run, and removes the pid file. Pure."""
    return ["/bin/sh", "-c", KILL_TASK, str(pid_file), str(run_path)]


class PbsHosts(BatchHosts):
    def __init__(
        self, job: Job, run_dir: RunDir, environ: Mapping[str, str], *, keeps_allocation: bool = False
    ) -> None:
        """`keeps_allocation`: the allocation outlives the attempt, and this process starts the next one."""
        super().__init__()
        self._job = job
        self._run_dir = run_dir
        self._environ = dict(environ)
        self._id = environ.get("PBS_JOBID", "")
        self._lines = read_nodefile(environ)
        self._qstat = find_tool("qstat", environ)
        self.requeues_in_process = keeps_allocation
        self.agent_environ: Mapping[str, str] | None = agent_environ(environ)
        self.reserve_seconds = end_reserve_seconds(job)
        self.all: Sequence[Host] = [
            Host(name=name) for name in used_hosts(job, self._lines, keeps_allocation=keeps_allocation)
        ]
        self._started: dict[int, tuple[str, Path]] = {}
        """The host and the pid file of each task, by the pid of the process that started it."""
        self._killers: dict[Path, subprocess.Popen[bytes]] = {}
        """The process that kills a task, by the pid file of the task."""

    def listen_address(self) -> str:
        """An address for the other hosts only: the job script and this process run on the first host."""
        return own_address((host.name for host in self.all[1:]), self._job.interface)

    def start_agent(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts no new session: PBS ends the sessions of the job, and a process outside of them would never end."""
        if node == 0:
            return self._popen(argv)
        host = self.all[node].name
        pid_file = self._run_dir.new_task_pid(host)
        process = self._popen(self._task_argv(host, task_command(self._run_dir.job_output, pid_file, argv)))
        self._started[process.pid] = host, pid_file
        return process

    def _popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=self._environ)

    def terminate(self, process: subprocess.Popen[bytes]) -> None:
        """pbs_tmrsh and ssh do not pass signals to their task, so a second task kills it."""
        if process.pid not in self._started:
            return super().terminate(process)
        host, pid_file = self._started[process.pid]
        self._killers[pid_file] = self._popen(self._task_argv(host, kill_command(pid_file, self._run_dir.path)))
        return None

    def end_late_agents(self) -> None:
        super().end_late_agents()
        self._killers = {file: killer for file, killer in self._killers.items() if killer.poll() is None}

    def close(self) -> None:
        """Waits KILLER_SECONDS for the killers. The pid file of a task whose killer is late is kept, because the
        killer's task on that host may still read it."""
        super().close()
        deadline = time.monotonic() + KILLER_SECONDS
        late = [file for file, killer in self._killers.items() if not _wait_or_kill(deadline, killer)]
        for _, pid_file in self._started.values():
            if pid_file not in late:
                pid_file.unlink(missing_ok=True)

    def _task_argv(self, host: str, argv: Sequence[str]) -> list[str]:
        for program in TASK_PROGRAMS:
            tool = find_tool(program, self._environ)
            if tool is not None:
                return task_argv(program, tool, host, self._lines.index(host), argv)
        why = f"none of {', '.join(TASK_PROGRAMS)} is on PATH or in PBS_EXEC/bin"
        raise EnvironmentProblem(f"no program can start a process on {host}", why=why)

    def start_query(self) -> SchedulerQuery | None:
        if self._qstat is None or not self._id:
            return None
        return start_view_query(self._qstat, self._id, self._environ)

    def requeue(self, lost_hosts: Sequence[str]) -> None:  # noqa: ARG002  PBS has no option to exclude hosts
        retry_until_answered(lambda: submit_successor(self._run_dir, self._environ), Pbs.label)


def _wait_or_kill(deadline: float, process: subprocess.Popen[bytes]) -> bool:
    """False if the process had to be killed. It has ended in either case."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


# PBS's commands inside a job: finds and runs them, queries the job, and submits its successor


def find_tool(name: str, environ: Mapping[str, str]) -> str | None:
    """The path of a tool, from PATH or the installation of PBS: the PATH of a job may lack it."""
    folders = environ.get("PATH", "").split(os.pathsep)
    folders += [f"{folder}/bin" for folder in (environ.get("PBS_EXEC"), _configured_prefix(), DEFAULT_PREFIX) if folder]
    candidates = (os.path.join(folder, name) for folder in folders if folder)  # noqa: PTH118
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _configured_prefix() -> str | None:
    try:
        lines = CONFIGURATION.read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("PBS_EXEC=")), None)


def run_pbs(name: str, arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """The output of the command. Raises Unreachable, or CalledProcessError if PBS refuses or the tool is missing."""
    tool = find_tool(name, environ)
    if tool is None:
        raise subprocess.CalledProcessError(127, name, "", f"{name} is not installed on this host")
    return run_command([tool, *arguments], environ, PBS)


def parse_scheduler_view(text: str, job_id: str) -> SchedulerView:
    """PBS's view of the surrounding job. A job that is queued or being requeued starts again by itself."""
    fields = query.find_job(query.parse_jobs(text), job_id) or {}
    is_requeued = fields.get("job_state") in WAITING_STATES or query.is_rerun(fields)
    return SchedulerView(end_at=query.walltime_end(fields), is_requeued=is_requeued)


def start_view_query(tool: str, job_id: str, environ: Mapping[str, str]) -> QueryProcess:
    """Runs `qstat -f`, whose text output is the same in all versions."""
    return QueryProcess([tool, "-f", job_id], environ, ANSWER_SECONDS, lambda text: parse_scheduler_view(text, job_id))


def submit_successor(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    """Submits the same script to run after this job, unless the run already has a successor. Raises Unreachable and
    SchedulerError."""
    if not query.has_successor(environ["PBS_JOBID"], run_dir.read_native_id()):
        _submit(run_dir, environ)
    if run_dir.cancel_mark.exists():  # the cancel reached only the old job
        _delete_successor(run_dir.read_native_id(), environ)


def _submit(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    sealed = ("-v", KEY_VARIABLE) if KEY_VARIABLE in environ else ()
    script = run_dir.next_script if run_dir.next_script.exists() else run_dir.job_script
    options = [*dependency_options(environ["PBS_JOBID"]), *sealed]
    try:
        successor = run_pbs("qsub", [*options, str(script)], PBS.environ_outside_job(environ)).split()[-1]
    except (subprocess.CalledProcessError, IndexError) as error:
        raise SchedulerError(
            "cannot submit a successor of this job",
            why=getattr(error, "stderr", "").strip() or "qsub printed no job id",
            hint="echelon resume {run}, from a login node",
        ) from error
    run_dir.write(run_dir.native_id, f"{successor}\n".encode())


def dependency_options(job_id: str) -> tuple[str, ...]:
    """The options of qsub for a successor. Pure.

    No job can depend on one element of an array. The successor of an element may start at once, and then waits for the
    run's lease.
    """
    return () if "[" in job_id else ("-W", f"depend=afterany:{job_id}")


def _delete_successor(successor: str, environ: Mapping[str, str]) -> None:
    try:
        run_pbs("qdel", [successor], PBS.environ_outside_job(environ))
    except subprocess.CalledProcessError as refusal:
        print(f"the run was cancelled, but its successor {successor} was not deleted: {refusal.stderr}", flush=True)
