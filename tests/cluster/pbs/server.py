"""A stand-in for OpenPBS on the nodes of the test cluster: real processes there, and the faults of the real one.

The job script runs on the first host only, at home, under a login shell. Tasks get neither its exports nor its folder
nor its PATH. pbsdsh exits 0 whatever happens. A host that is lost goes unnoticed. At qdel and at the walltime every
process of the job's sessions gets TERM, and KILL ten seconds later; what has left those sessions is forgotten.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from folder import UID, USER
from pbs.jobs import FINISHED, UNKNOWN_JOB, Job, Task, qstat
from pbs.request import Refused, parse

HERE = Path(__file__).parent
TOOLS = ("qsub", "qstat", "qdel", "pbsdsh", "pbs_tmrsh")
QUEUES = ("workq", "gpu")
UNKNOWN_QUEUE = 170
KILL_DELAY_SECONDS = 10.0
TICK_SECONDS = 0.05
TASK_PATH = "/bin:/usr/bin"


class Server:
    def __init__(self, cluster, *, tools=TOOLS, kill_delay: float = KILL_DELAY_SECONDS) -> None:
        """`kill_delay` 0 is a PBS that ends all of a job together with its login shell, which TERM reaches too."""
        self.cluster = cluster
        self.kill_delay = kill_delay
        self.jobs: dict[str, Job] = {}
        self.folder = cluster.shared / "pbs"
        self.bin = self.folder / "bin"
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._lay_out(tools)

    def _lay_out(self, tools) -> None:
        for folder in (self.bin, self.folder / "aux", self.folder / "scripts"):
            folder.mkdir(parents=True, exist_ok=True)
        self.address = self.folder / "server"
        for name in TOOLS:
            (self.bin / name).unlink(missing_ok=True)
        for name in tools:
            text = f'#!/bin/sh\nexec {sys.executable} -I {HERE}/tool.py {self.address} {name} "$@"\n'
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def __enter__(self):
        self.address.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.address))
        self.address.chmod(0o777)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._serve, self._schedule)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.address))
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        self.address.unlink(missing_ok=True)
        for job in self.jobs.values():
            self._signal(job, signal.SIGKILL)
            for task in job.tasks:
                task.process.wait(10)

    def unfinished(self) -> list[str]:
        return [job.id for job in self.jobs.values() if job.state != "F"]

    # Talking to the tools

    def _serve(self) -> None:
        while not self._stopping.is_set():
            client, _ = self._listener.accept()
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, client.makefile("r") as reader:
            line = reader.readline()
            if not line or self._is_cut_off(client):
                return  # its packets would not have come
            question = json.loads(line)
            try:
                code, out, err = self._answer(question, client)
            except Refused as refused:
                code, out, err = refused.code, "", f"{refused}\n"
            try:
                client.sendall(json.dumps({"code": code, "out": out, "err": err}).encode() + b"\n")
            except OSError:
                pass  # it did not wait

    def _is_cut_off(self, client: socket.socket) -> bool:
        pid, _, _ = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return any(pid in {p.pid for p in self.cluster.processes(name)} for name in self.cluster.cut_off)

    def _answer(self, question: dict, client: socket.socket) -> tuple[int, str, str]:
        argv, environ = question["argv"], question["environ"]
        match question["tool"]:
            case "qsub":
                return 0, f"{self._submit(argv, question['script'], environ)}\n", ""
            case "qstat":
                with self._lock:
                    return qstat(self.jobs, argv)
            case "qdel":
                return self._delete(argv[-1])
            case "pbs_tmrsh":
                return self._remote_shell(argv, environ, client)
            case _:
                return self._distributed_shell(argv, environ, client)

    # Submitting and deleting

    def _submit(self, argv: list[str], script: str, environ: dict[str, str]) -> str:
        request = parse(argv, script, environ)
        if request.options.get("q", "workq") not in QUEUES:
            raise Refused(UNKNOWN_QUEUE, "qsub: Unknown queue")
        with self._lock:
            job = Job(f"{len(self.jobs)}.ctl", request, script, environ)
            self.jobs[job.id] = job
        return job.id

    def _delete(self, name: str) -> tuple[int, str, str]:
        job = self.jobs.get(name)
        if job is None:
            return UNKNOWN_JOB, "", f"qdel: Unknown Job Id {name}\n"
        if job.state == "F":
            return FINISHED, "", f"qdel: Job has finished {name}\n"
        with self._lock:
            if job.state in "QH":
                job.state = "F"
            else:
                self._ask_to_end(job)
        return 0, "", ""

    # The life of a job

    def _schedule(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            with self._lock:
                for job in list(self.jobs.values()):
                    self._look_at(job)

    def _look_at(self, job: Job) -> None:
        if job.state in "QH":
            first = self.jobs.get(job.waits_for or "")
            job.state = "Q" if first is None or first.state == "F" else "H"
            if job.state == "Q":
                self._try_to_run(job)
        elif job.state == "R":
            self._watch(job)

    def _try_to_run(self, job: Job) -> None:
        chunks = job.request.chunks
        scatter = job.request.resources.get("place", "free").startswith("scatter")
        per_host = 1 if scatter else len(chunks)
        cpus, gpus = (int(chunks[0].get(name, default)) for name, default in (("ncpus", 1), ("ngpus", 0)))
        busy = {host for other in self.jobs.values() if other.state in "RE" for host in other.hosts}
        if cpus > self.cluster.cpus or gpus > self.cluster.gpus or (scatter and len(chunks) > len(self.cluster.names)):
            job.comment = "Can Never Run: Insufficient amount of resource: ncpus"
            return
        free = [host for host in self.cluster.names if host not in busy and self.cluster.nodes[host].is_on]
        if len(free) * per_host < len(chunks):
            job.comment = "Not Running: Insufficient amount of resource: ncpus"
            return
        job.hosts = [free[i // per_host] for i in range(len(chunks))]
        self._run(job, cpus)

    def _run(self, job: Job, cpus: int) -> None:
        job.started, job.state, job.run_count = time.time(), "R", job.run_count + 1
        job.comment = f"Job run at {time.strftime('%a %b %d at %H:%M')} on ({job.hosts[0]}:ncpus={cpus})"
        nodefile, script = self.folder / "aux" / job.id, self.folder / "scripts" / f"{job.id}.SC"
        nodefile.write_text("".join(f"{host}\n" for host in job.hosts))
        script.write_text(job.script, errors="surrogateescape")
        script.chmod(0o755)
        environ = {**self._variables(job), "NCPUS": str(cpus), "OMP_NUM_THREADS": str(cpus)}
        environ |= {
            "PBS_NODEFILE": str(nodefile),
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PATH": f"/usr/local/bin:{TASK_PATH}",
        }
        shell = [job.request.options.get("S", "/bin/bash"), "-l"]
        process = self._start(job, job.hosts[0], shell, environ, stdin=subprocess.PIPE)
        process.stdin.write(f"{script}\n".encode())
        process.stdin.close()

    def _variables(self, job: Job) -> dict[str, str]:
        mine = {"PBS_JOBID": job.id, "PBS_JOBNAME": job.request.options.get("N", "STDIN"), "PBS_JOBCOOKIE": "0123"}
        return {"HOME": str(self.cluster.home), "USER": USER, "LOGNAME": USER, "SHELL": "/bin/bash", "PATH": TASK_PATH,
                **mine, **job.request.variables}  # fmt: skip

    def _start(self, job: Job, host: str, argv: list[str], environ: dict[str, str], stdin=subprocess.DEVNULL):
        """In a session of its own, at home, with nothing but these variables."""
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
        return process

    def _watch(self, job: Job) -> None:
        """The login shell's end is the job's, unless its host was lost: then nobody hears of it."""
        self._find_sessions(job)
        code = job.tasks[0].process.poll()
        if job.ending_since is None and time.time() - job.started > job.walltime:
            job.exit_status = -29
            self._ask_to_end(job)
        if job.ending_since is not None and time.monotonic() - job.ending_since > self.kill_delay:
            self._signal(job, signal.SIGKILL)
        if code is None or not self._is_there(job.hosts[0]):
            return
        if job.ending_since is not None and self.kill_delay and self._sessions(job):
            return
        self._signal(job, signal.SIGKILL)
        if job.exit_status is None:
            job.exit_status = 256 - code if code < 0 else code
        missing = bool(job.folder) and not Path(job.output()).parent.is_dir()
        job.state = "E" if missing else "F"

    def _ask_to_end(self, job: Job) -> None:
        if job.ending_since is None:
            job.ending_since = time.monotonic()
            self._signal(job, signal.SIGTERM)

    def _is_there(self, host: str) -> bool:
        return self.cluster.nodes[host].is_on

    def _signal(self, job: Job, signum: int) -> None:
        for pid in self._sessions(job):
            try:
                os.kill(pid, signum)
            except ProcessLookupError:
                pass

    def _sessions(self, job: Job) -> list[int]:
        """The processes of the job's sessions, on hosts that can be reached."""
        self._find_sessions(job)
        wanted = {task.session for task in job.tasks if task.host not in self.cluster.cut_off} - {0}
        return [pid for pid in _pids() if _session_of(pid) in wanted]

    def _find_sessions(self, job: Job) -> None:
        for task in job.tasks:
            task.session = task.session or _child_of(task.process.pid)

    # Tasks

    def _remote_shell(self, argv, environ, client) -> tuple[int, str, str]:
        host, *command = argv
        job = self.jobs.get(environ.get("PBS_JOBID", ""))
        if job is None:
            return 1, "", "pbs_tmrsh: not in a PBS job\n"
        if host not in job.hosts:
            return 254, "", f'pbs_tmrsh: host "{host}" is not a part of job {job.id}\n'
        return self._task(job, host, command, client), "", ""

    def _distributed_shell(self, argv, environ, client) -> tuple[int, str, str]:
        """Exits 0; an index beyond the end begins anew."""
        job = self.jobs.get(environ.get("PBS_JOBID", ""))
        if job is None:
            return 1, "", "pbsdsh: not in a PBS job\n"
        number, command = int(argv[argv.index("-n") + 1]), argv[argv.index("--") + 1 :]
        code = self._task(job, job.hosts[number % len(job.hosts)], command, client)
        return 0, "", f"pbsdsh: task 0x00000001 exit status {code}\n" if code else ""

    def _task(self, job: Job, host: str, command: list[str], client: socket.socket) -> int:
        """Its exit code; of a task on a lost host there is none, however long one waits."""
        environ = {**self._variables(job), "PBS_NODENUM": str(job.hosts.index(host)), "PBS_ENVIRONMENT": "PBS_BATCH"}
        if host != job.hosts[0]:
            environ["PBS_NODEFILE"] = str(self.folder / "aux" / job.id)
        with self._lock:
            process = self._start(job, host, command, environ)
        client.settimeout(TICK_SECONDS)
        while not self._stopping.is_set():
            code = process.poll()
            if code is not None and self._stays_on(host, code):
                return code if code >= 0 else 128 - code
            if job.state == "F":
                return 1
            self._end_if_told(process, client)
        return 1

    def _stays_on(self, host: str, code: int) -> bool:
        """A process that was killed may have gone with its host, which takes a moment to be seen off."""
        deadline = time.monotonic() + (1.0 if code in (-9, 137) else 0.0)
        while self._is_there(host) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return self._is_there(host)

    def _end_if_told(self, process: subprocess.Popen, client: socket.socket) -> None:
        """The tool hangs up when it is told to end: its task is ended."""
        try:
            if client.recv(1) == b"" and (child := _child_of(process.pid)):
                os.kill(child, signal.SIGKILL)
        except (TimeoutError, ProcessLookupError):
            pass


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _child_of(pid: int) -> int:
    """What nsenter started, as this machine counts."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0
