"""The life of a job of the stand-in PBS, from the queue to its end."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from pbs.behaviour import Behaviour
from pbs.jobs import OVER, Job, indices
from pbs.moms import TASK_PATH, Moms

RERUN, FIRST_HOST_FAILED, WALLTIME = -11, -20, -29


class Lives:
    """Called with the lock of the moms held."""

    def __init__(self, cluster, moms: Moms, jobs: dict[str, Job], behaviour: Behaviour, folder: Path) -> None:
        self.cluster, self.moms, self.jobs, self.behaviour, self.folder = cluster, moms, jobs, behaviour, folder
        self.cpus, self.gpus = cluster.cpus, cluster.gpus
        self._lost: dict[str, float] = {}

    def look_at_all(self) -> None:
        now = time.monotonic()
        self._lost = {h: self._lost.get(h, now) for h in self.cluster.names if not self.moms.is_there(h)}
        for job in list(self.jobs.values()):
            (self._look_at_array if job.elements else self._look_at)(job)

    def down_for(self, host: str) -> float:
        """Seconds since the server marked the host's node down; negative if it has not."""
        lost = self._lost.get(host)
        return -1.0 if lost is None else time.monotonic() - lost - self.behaviour.node_down

    def _look_at_array(self, array: Job) -> None:
        states = {element.state for element in array.elements}
        if states == {"X"}:
            array.state = "F"
            for element in array.elements:
                element.state = "F"
        elif array.state == "Q" and states - {"Q", "H"}:
            array.state = "B"

    def _look_at(self, job: Job) -> None:
        match job.state:
            case "Q" | "H":
                first = self.jobs.get(job.waits_for or "")
                job.state = "Q" if first is None or first.state in OVER else "H"
                if job.state == "Q" and not self._is_held_back(job):
                    self._try_to_run(job)
            case "R":
                self._watch(job)
            case "E":
                self._leave(job)
            case _ if job.is_forced and self.moms.is_there(job.hosts[0]):
                self._discard(job)

    def _is_held_back(self, job: Job) -> bool:
        if job.index is None:
            return False
        array = self.jobs[job.array_id]
        _, limit = indices(array.request.options["J"])
        return limit is not None and sum(one.state in "RES" for one in array.elements) >= limit

    def _discard(self, job: Job) -> None:
        job.back_since = job.back_since or time.monotonic()
        if time.monotonic() - job.back_since > self.behaviour.discard:
            self.moms.signal(job, signal.SIGKILL, job.hosts[0])
            job.is_forced = False

    # To its hosts

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
        job.ending_since, job.exit_status = None, None
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
        job.login_shell = self.moms.start(job, job.hosts[0], shell, environ, stdin=subprocess.PIPE)
        stdin = job.login_shell.process.stdin
        stdin.write(f"{script}\n".encode())
        stdin.close()

    # To its end

    def ask_to_end(self, job: Job) -> None:
        if job.ending_since is None:
            job.ending_since = time.monotonic()
            self.moms.signal(job, signal.SIGTERM)

    def _watch(self, job: Job) -> None:
        """The end of the login shell is the end of the job, unless the first host is lost: then no end is seen."""
        self.moms.find_sessions(job)
        if job.ending_since is None and time.time() - job.started > job.walltime:
            job.exit_status = WALLTIME
            self.ask_to_end(job)
        if job.ending_since is not None and time.monotonic() - job.ending_since > self.behaviour.kill_delay:
            self.moms.signal(job, signal.SIGKILL)
        if not self.moms.is_there(job.hosts[0]):
            if self.down_for(job.hosts[0]) > self.behaviour.node_fail_requeue:
                self._requeue(job, FIRST_HOST_FAILED)
            return
        code = job.login_shell.process.poll()
        if code is None or (job.ending_since is not None and self.behaviour.kill_delay and self.moms.sessions(job)):
            return
        self.moms.signal(job, signal.SIGKILL)
        self._exit(job, code)

    def _exit(self, job: Job, code: int) -> None:
        if job.is_rerun:
            job.exit_status = RERUN
        elif job.exit_status is None:
            job.exit_status = 256 - code if code < 0 else code
        late = 0.0 if all(map(self.moms.is_there, job.hosts)) else self.behaviour.lost_sister
        job.state, job.exiting_until = "E", time.monotonic() + self.behaviour.exiting + late

    def _leave(self, job: Job) -> None:
        """A job whose output has no folder to go to stays in state E."""
        missing = bool(job.folder) and not Path(job.output()).parent.is_dir()
        if missing or time.monotonic() < job.exiting_until:
            return
        if job.is_rerun:
            self._requeue(job, None)
        else:
            job.end()

    def _requeue(self, job: Job, exit_status: int | None) -> None:
        """The same id again. The other hosts discard what they have of the job."""
        self.moms.signal(job, signal.SIGKILL)
        job.state, job.hosts, job.started, job.is_rerun = "Q", [], 0.0, False
        job.exit_status = exit_status
