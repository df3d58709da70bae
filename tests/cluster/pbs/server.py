"""A stand-in for OpenPBS on the nodes of the test cluster: real processes there, and the faults of the real one.

The job script runs on the first host only, at home, under a login shell. Tasks get neither its exports nor its folder
nor its PATH. pbsdsh exits 0 whatever happens. A host that is lost goes unnoticed. At qdel and at the walltime every
process of the job's sessions gets TERM, and KILL ten seconds later; what has left those sessions is forgotten.
A job whose first host is out of reach is deleted only by force, which no host hears of: the first one ends what it has
of the job some time after it is back, the others never do.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from pbs.jobs import FINISHED, UNKNOWN_JOB, Job, qstat
from pbs.moms import TASK_PATH, TICK_SECONDS, Moms
from pbs.request import RESOURCES, Refused, Request, parse

HERE = Path(__file__).parent
TOOLS = ("qsub", "qstat", "qdel", "pbsdsh", "pbs_tmrsh")
QUEUES = ("workq", "gpu")
UNKNOWN_QUEUE = 170
NO_MOM = 222
KILL_DELAY_SECONDS = 10.0
LOST_SECONDS = 300.0
DISCARD_SECONDS = 20.0


class Server:
    queues = QUEUES
    resources = RESOURCES

    def __init__(
        self, cluster, *, tools=TOOLS, kill_delay: float = KILL_DELAY_SECONDS, lost_after: float = LOST_SECONDS,
        walltime: str = "01:00:00",
    ) -> None:  # fmt: skip
        """`kill_delay` 0 is a PBS that ends all of a job together with its login shell, which TERM reaches too.

        `lost_after` is when it gives a job up whose first host is lost; `walltime` is what a job has that asks for none.
        """
        self.lost_after, self.walltime = lost_after, walltime
        self.cluster, self.cpus, self.gpus = cluster, cluster.cpus, cluster.gpus
        self.kill_delay = kill_delay
        self.jobs: dict[str, Job] = {}
        self.folder = cluster.shared / "pbs"
        self.bin = self.folder / "bin"
        self.moms = Moms(cluster, self.folder)
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
        self.moms.stopping.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.address))
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        self.address.unlink(missing_ok=True)
        for job in self.jobs.values():
            self.moms.signal(job, signal.SIGKILL)
            for task in job.tasks:
                task.process.wait(10)

    def unfinished(self) -> list[str]:
        return [job.id for job in self.jobs.values() if job.state != "F"]

    # Talking to the tools

    def _serve(self) -> None:
        while not self.moms.stopping.is_set():
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
                with self.moms.lock:
                    return qstat(self.jobs, argv)
            case "qdel":
                return self._delete(argv[-1], by_force=argv[:-1] == ["-W", "force"])
            case "pbs_tmrsh":
                return self.moms.remote_shell(self.jobs.get(environ.get("PBS_JOBID", "")), argv, client)
            case _:
                return self.moms.distributed_shell(self.jobs.get(environ.get("PBS_JOBID", "")), argv, client)

    # Submitting and deleting

    def _submit(self, argv: list[str], script: str, environ: dict[str, str]) -> str:
        request = parse(argv, script, environ, self.resources)
        if request.options.get("q", "workq") not in self.queues:
            raise Refused(UNKNOWN_QUEUE, "qsub: Unknown queue")
        self.rewrite(request)
        with self.moms.lock:
            request.resources.setdefault("walltime", self.walltime)
            job = Job(f"{len(self.jobs)}.ctl", request, script, environ)
            self.jobs[job.id] = job
        return job.id

    def rewrite(self, request: Request) -> None:
        """What a site's own hook makes of a request; here nothing."""

    def _delete(self, name: str, *, by_force: bool) -> tuple[int, str, str]:
        job = self.jobs.get(name)
        if job is None:
            return UNKNOWN_JOB, "", f"qdel: Unknown Job Id {name}\n"
        if job.state == "F":
            return FINISHED, "", f"qdel: Job has finished {name}\n"
        with self.moms.lock:
            if job.state in "QH":
                job.state = "F"
            elif not self.moms.is_there(job.hosts[0]):
                if not by_force:
                    return NO_MOM, "", f"qdel: Server could not connect to MOM {name}\n"
                job.state, job.is_forced = "F", True
            else:
                self._ask_to_end(job)
        return 0, "", ""

    # The life of a job

    def _schedule(self) -> None:
        while not self.moms.stopping.wait(TICK_SECONDS):
            with self.moms.lock:
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
        elif job.is_forced and self.moms.is_there(job.hosts[0]):
            self._discard(job)

    def _discard(self, job: Job) -> None:
        job.back_since = job.back_since or time.monotonic()
        if time.monotonic() - job.back_since > DISCARD_SECONDS:
            self.moms.signal(job, signal.SIGKILL, job.hosts[0])
            job.is_forced = False

    def _try_to_run(self, job: Job) -> None:
        chunks = job.request.chunks
        scatter = job.request.resources.get("place", "free").startswith("scatter")
        per_host = 1 if scatter else len(chunks)
        cpus, gpus = (int(chunks[0].get(name, default)) for name, default in (("ncpus", 1), ("ngpus", 0)))
        busy = {host for other in self.jobs.values() if other.state in "RE" for host in other.hosts}
        if cpus > self.cpus or gpus > self.gpus or (scatter and len(chunks) > len(self.cluster.names)):
            job.comment = "Can Never Run: Insufficient amount of resource: ncpus"
            return
        free = [host for host in self.cluster.names if host not in busy and self.moms.is_there(host)]
        if len(free) * per_host < len(chunks):
            job.comment = "Not Running: Insufficient amount of resource: ncpus"
            return
        job.hosts = [free[i // per_host] for i in range(len(chunks))]
        self._run(job, cpus)

    def _run(self, job: Job, cpus: int) -> None:
        job.started, job.state, job.run_count = time.time(), "R", job.run_count + 1
        job.comment = f"Job run at {time.strftime('%a %b %d at %H:%M')} on ({job.hosts[0]}:ncpus={cpus})"
        nodefile, script = self.folder / "aux" / job.id, self.folder / "scripts" / f"{job.id}.SC"
        lines = (int(chunk.get("mpiprocs", 1)) for chunk in job.request.chunks)
        nodefile.write_text("".join(f"{host}\n" * count for host, count in zip(job.hosts, lines, strict=True)))
        script.write_text(job.script, errors="surrogateescape")
        script.chmod(0o755)
        environ = {**self.moms.variables(job), "NCPUS": str(cpus), "OMP_NUM_THREADS": str(cpus)}
        environ |= {
            "PBS_NODEFILE": str(nodefile),
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PATH": f"/usr/local/bin:{TASK_PATH}",
        }
        shell = [job.request.options.get("S", "/bin/bash"), "-l"]
        process = self.moms.start(job, job.hosts[0], shell, environ, stdin=subprocess.PIPE)
        process.stdin.write(f"{script}\n".encode())
        process.stdin.close()

    def _watch(self, job: Job) -> None:
        """The login shell's end is the job's, unless its host was lost: then nobody hears of it."""
        self.moms.find_sessions(job)
        code = job.tasks[0].process.poll()
        if job.ending_since is None and time.time() - job.started > job.walltime:
            job.exit_status = -29
            self._ask_to_end(job)
        if job.ending_since is not None and time.monotonic() - job.ending_since > self.kill_delay:
            self.moms.signal(job, signal.SIGKILL)
        if not self.moms.is_there(job.hosts[0]):
            job.lost_since = job.lost_since or time.monotonic()
            if time.monotonic() - job.lost_since < self.lost_after:
                return
            code, job.exit_status = 0, 0
        else:
            job.lost_since = None
        if code is None:
            return
        if job.ending_since is not None and self.kill_delay and self.moms.sessions(job):
            return
        self.moms.signal(job, signal.SIGKILL)
        if job.exit_status is None:
            job.exit_status = 256 - code if code < 0 else code
        missing = bool(job.folder) and not Path(job.output()).parent.is_dir()
        job.state = "E" if missing else "F"

    def _ask_to_end(self, job: Job) -> None:
        if job.ending_since is None:
            job.ending_since = time.monotonic()
            self.moms.signal(job, signal.SIGTERM)
