"""A stand-in for OpenPBS on the nodes of the test cluster, with real processes and the faults of OpenPBS.

The job script runs on the first host only, at home, under a login shell. Tasks get neither its exports nor its folder
nor its PATH. pbsdsh exits 0 whatever happens. The server has no job history unless it is configured. At qdel and at the
walltime every process of the job's sessions gets TERM, and KILL later; processes in other sessions run on. While the
first host of a job is dead and its node not marked down, qdel hangs and qdel -W force is refused; after that force
succeeds, but no host is notified: the first one ends what it has of the job some time after it is back, the others never.
"""

from __future__ import annotations

import json
import shlex
import signal
import socket
import struct
import sys
import threading
from dataclasses import replace
from pathlib import Path

from pbs.behaviour import Behaviour
from pbs.jobs import FINISHED, OVER, UNKNOWN_JOB, Job, find, indices, qstat
from pbs.lives import Lives
from pbs.moms import TICK_SECONDS, Moms
from pbs.request import RESOURCES, Refused, Request, parse

HERE = Path(__file__).parent
TOOLS = ("qsub", "qstat", "qdel", "pbsdsh", "pbs_tmrsh")
QUEUES = ("workq", "gpu")
UNKNOWN_QUEUE = 170
NO_MOM = 222


class Server:
    queues = QUEUES
    resources = RESOURCES

    def __init__(self, cluster, *, tools=TOOLS, **behaviour) -> None:
        """`behaviour` are fields of Behaviour."""
        self.cluster = cluster
        self.behaviour = Behaviour(**behaviour)
        self.jobs: dict[str, Job] = {}
        self.folder = cluster.shared / "pbs"
        self.bin = self.folder / "bin"
        self.moms = Moms(cluster, self.folder)
        self.lives = Lives(cluster, self.moms, self.jobs, self.behaviour, self.folder)
        self._submissions = 0
        self._lay_out(tools)

    def _lay_out(self, tools) -> None:
        for folder in (self.bin, self.folder / "aux", self.folder / "scripts"):
            folder.mkdir(parents=True, exist_ok=True)
        self.address = self.folder / "server"
        for name in TOOLS:
            (self.bin / name).unlink(missing_ok=True)
        for name in tools:
            words = shlex.join([sys.executable, "-I", f"{HERE}/tool.py", str(self.address), name])
            text = f'#!/bin/sh\nexec {words} "$@"\n'
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
            self.moms.resume(job)
            for task in job.tasks:
                task.process.wait(10)

    def unfinished(self) -> list[str]:
        return [job.id for job in self.jobs.values() if job.state not in OVER]

    # What managers do

    def rerun(self, name: str) -> None:
        """qrerun, and preemption by requeue."""
        with self.moms.lock:
            job = self.jobs[name]
            job.is_rerun = True
            self.lives.ask_to_end(job)

    def suspend(self, name: str) -> None:
        """qsig -s suspend, and preemption by suspension: other jobs get the hosts."""
        with self.moms.lock:
            self.jobs[name].state = "S"
            self.moms.suspend(self.jobs[name])

    def resume(self, name: str) -> None:
        """qsig -s resume."""
        with self.moms.lock:
            self.jobs[name].state = "R"
            self.moms.resume(self.jobs[name])

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
                    return qstat(self.jobs, argv, history=self.behaviour.history)
            case "qdel":
                return self._delete(argv[-1], client, by_force=argv[:-1] == ["-W", "force"])
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
        if "[" in request.attributes.get("depend", "").replace("[]", ""):
            raise Refused(1, "qsub: illegal -W value")  # no job can wait for one element of an array
        with self.moms.lock:
            request.resources.setdefault("walltime", self.behaviour.walltime)
            number, self._submissions = self._submissions, self._submissions + 1
            job = Job(f"{number}.ctl", request, script, environ)
            return self._add_array(job, number) if "J" in request.options else self._add(job)

    def _add(self, job: Job) -> str:
        self.jobs[job.id] = job
        return job.id

    def _add_array(self, job: Job, number: int) -> str:
        each, _ = indices(job.request.options["J"])
        elements = [replace(job, id=f"{number}[{index}].ctl", index=index, hosts=[], tasks=[]) for index in each]
        name = self._add(replace(job, id=f"{number}[].ctl", elements=elements))
        for element in elements:
            self._add(element)
        return name

    def rewrite(self, request: Request) -> None:
        """What a site's own hook makes of a request; here nothing."""

    def _delete(self, name: str, client: socket.socket, *, by_force: bool) -> tuple[int, str, str]:
        job = find(self.jobs, name)
        if job is None or (job.state == "F" and not self.behaviour.history):
            return UNKNOWN_JOB, "", f"qdel: Unknown Job Id {name}\n"
        if job.state in OVER:
            return FINISHED, "", f"qdel: Job has finished {name}\n"
        for one in job.elements or [job]:
            while not by_force and self._is_waiting_for_its_host(one):
                if self._has_left(client):
                    return 1, "", ""
            with self.moms.lock:
                if self._cannot_be_reached(one) and not (by_force and self.lives.down_for(one.hosts[0]) > 0):
                    return NO_MOM, "", f"qdel: Server could not connect to MOM {name}\n"
                self._end(one)
        return 0, "", ""

    def _cannot_be_reached(self, job: Job) -> bool:
        return job.state in "RSE" and not self.moms.is_there(job.hosts[0])

    def _is_waiting_for_its_host(self, job: Job) -> bool:
        with self.moms.lock:
            return self._cannot_be_reached(job) and self.lives.down_for(job.hosts[0]) <= 0

    def _has_left(self, client: socket.socket) -> bool:
        client.settimeout(TICK_SECONDS)
        try:
            return client.recv(64) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def _end(self, job: Job) -> None:
        if job.state in "QH":
            job.end()
        elif self._cannot_be_reached(job):
            job.end()
            job.is_forced = True
        else:
            if job.state == "S":
                self.resume(job.id)
            self.lives.ask_to_end(job)

    def _schedule(self) -> None:
        while not self.moms.stopping.wait(TICK_SECONDS):
            with self.moms.lock:
                self.lives.look_at_all()
