"""The host side of the stand-in PBS: tasks in separate sessions. It signals only these sessions."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from folder import UID, USER
from pbs.jobs import OVER, Job, Task

TICK_SECONDS = 0.05
TASK_PATH = "/bin:/usr/bin"


class Moms:
    def __init__(self, cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.lock = threading.RLock()
        self.stopping = threading.Event()

    def variables(self, job: Job) -> dict[str, str]:
        mine = {"PBS_JOBID": job.id, "PBS_JOBNAME": job.request.options.get("N", "STDIN"), "PBS_JOBCOOKIE": "0123"}
        mine["PBS_O_PATH"] = job.environ.get("PATH", "")
        if job.index is not None:
            mine |= {"PBS_ARRAY_INDEX": str(job.index), "PBS_ARRAY_ID": job.array_id}
        return {
            "HOME": str(self.cluster.home),
            "USER": USER,
            "LOGNAME": USER,
            "SHELL": "/bin/bash",
            "PATH": TASK_PATH,
            **mine,
            **job.request.variables,
        }

    def start(self, job: Job, host: str, argv: list[str], environ: dict[str, str], stdin=subprocess.DEVNULL):
        """Runs in a separate session, in the home folder, with only these variables."""
        entry = self.cluster.nodes[host].entry(user=USER, cwd=self.cluster.home)
        missing = bool(job.folder) and not Path(job.output()).parent.is_dir()
        with Path("/dev/null" if missing or not job.folder else job.output()).open("ab") as output:
            if output.name != "/dev/null":
                os.chown(output.name, UID, UID)
            process = subprocess.Popen(
                [*entry, "setsid", *argv], env=environ, stdin=stdin, stdout=output, stderr=output
            )
        task = Task(host, process)
        job.tasks.append(task)
        return task

    def is_there(self, host: str) -> bool:
        return self.cluster.nodes[host].is_on and host not in self.cluster.cut_off

    def signal(self, job: Job, signum: int, host: str | None = None) -> None:
        for pid in self.sessions(job, host):
            try:
                os.kill(pid, signum)
            except ProcessLookupError:
                pass

    def suspend(self, job: Job) -> None:
        """Stops the sessions of the job's tasks. Processes in other sessions run on."""
        self.signal(job, signal.SIGSTOP)

    def resume(self, job: Job) -> None:
        self.signal(job, signal.SIGCONT)
        for task in job.tasks:
            if task.process.poll() is None:  # nsenter stops itself with its child
                task.process.send_signal(signal.SIGCONT)

    def sessions(self, job: Job, host: str | None = None) -> list[int]:
        """The processes of the job's sessions, on hosts that can be reached, or on one of them."""
        self.find_sessions(job)
        tasks = (task for task in job.tasks if task.host not in self.cluster.cut_off and host in (None, task.host))
        wanted = {task.session for task in tasks} - {0}
        return [pid for pid in pids() if session_of(pid) in wanted and state_of(pid) != "Z"]

    def find_sessions(self, job: Job) -> None:
        for task in job.tasks:
            task.session = task.session or child_of(task.process.pid)
            if state_of(task.session) == "Z" and task.process.poll() is None:  # nsenter stopped itself with its child
                task.process.send_signal(signal.SIGCONT)

    # Tasks

    def remote_shell(self, job: Job | None, argv, client) -> tuple[int, str, str]:
        host, *command = argv
        if job is None:
            return 1, "", "pbs_tmrsh: not in a PBS job\n"
        if host not in job.hosts:
            return 255, "", f'pbs_tmrsh: host "{host}" is not a part of job {job.id}\n'
        return self._task(job, host, command, client), "", ""

    def distributed_shell(self, job: Job | None, argv, client) -> tuple[int, str, str]:
        """Exits 0; an index beyond the end begins anew."""
        if job is None:
            return 1, "", "pbsdsh: not in a PBS job\n"
        number, command = int(argv[argv.index("-n") + 1]), argv[argv.index("--") + 1 :]
        code = self._task(job, job.hosts[number % len(job.hosts)], command, client)
        return 0, "", f"pbsdsh: task 0x00000001 exit status {code}\n" if code else ""

    def _task(self, job: Job, host: str, command: list[str], client: socket.socket) -> int:
        """Its exit code; of a task on a lost host there is none, however long one waits."""
        environ = {**self.variables(job), "PBS_NODENUM": str(job.hosts.index(host)), "PBS_ENVIRONMENT": "PBS_BATCH"}
        if host != job.hosts[0]:
            environ["PBS_NODEFILE"] = str(self.folder / "aux" / job.id)
        while not self.is_there(host):  # a request to a lost host gets no answer
            if job.state in OVER or self.stopping.wait(TICK_SECONDS):
                return 1
        with self.lock:
            process = self.start(job, host, command, environ).process
        client.settimeout(TICK_SECONDS)
        while not self.stopping.is_set():
            code = process.poll()
            if code is not None and self.is_there(host):
                return code if code >= 0 else 128 - code
            if job.state in OVER:
                return 1
            self._end_if_asked(process, client, reached=self.is_there(host) and self.is_there(job.hosts[0]))
        return 1

    def _end_if_asked(self, process: subprocess.Popen, client: socket.socket, *, reached: bool) -> None:
        """Only pbsdsh passes TERM on. If pbs_tmrsh ends, or either is killed or cut off, the task continues."""
        try:
            heard = client.recv(64)
        except TimeoutError:
            return
        except OSError:
            heard = b""
        child = child_of(process.pid)
        if heard and child and reached:
            os.kill(child, signal.SIGKILL)
        elif not heard:
            time.sleep(TICK_SECONDS)


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def state_of(pid: int) -> str:
    """Empty for an ended process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def child_of(pid: int) -> int:
    """What nsenter started, as this machine counts."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0
