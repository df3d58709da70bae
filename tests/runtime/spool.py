"""`--on spool`: a complete backend for tests. A folder is its queue; its jobs and nodes are processes of this machine."""
# ruff: noqa: ARG002  a small backend needs few of its arguments

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from echelon.backends import Backend, DerivedValue, NativeOption, Resolution
from echelon.backends.batch_hosts import BatchHosts
from echelon.backends.hosts import Host
from echelon.errors import EnvironmentProblem
from echelon.states import JobState, JobStatus
from echelon.system.processes import start_time


class Spool(Backend):
    name = "spool"
    label = "Spool"
    runs_script_here = True
    rehearses_nodes = True
    supported_settings = frozenset({"account"})
    native_option = NativeOption(
        help="Any other option of spool; repeatable.",
        name_pattern=r"[a-z]+",
        hint="use a word, for example --spool quiet",
    )
    job_id_variable = "SPOOL_JOB"

    # Control half

    def detect(self, environ, *, use_allocation):
        return f"SPOOL_DIR={environ['SPOOL_DIR']}" if environ.get("SPOOL_DIR") else None

    def resolve(self, settings, environ):
        if not environ.get("SPOOL_DIR"):
            raise EnvironmentProblem("no spool folder", why="SPOOL_DIR is not set", hint="export SPOOL_DIR=DIR")
        return Resolution(values={"account": DerivedValue(value="anyone", origin="spool's default")})

    def submission_summary(self, job, native_id):
        return f"Spool job {native_id}"

    def render(self, job, run_dir):
        from echelon.backends.process import process_script

        return process_script(job, run_dir, f"for {job.booking.account}, with {dict(job.booking.native)}")

    def submit(self, run_dir, environ, other_runs=()):
        return enqueue(run_dir, environ)

    def query(self, run_dirs):
        return [JobStatus(state=JobState.RUNNING, native="spooled") if pid_of(run) else None for run in run_dirs]

    def query_interval(self, seconds):
        return 0.5

    def cancel(self, run_dir, *, force=False):
        pid = pid_of(run_dir)
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
        return pid is not None

    # Node half

    def hosts(self, job, run_dir, environ):
        return SpoolHosts(job, run_dir, environ)

    def reason_to_exit(self, run_dir, environ):
        return None

    def requeue_without_supervisor(self, job, attempt, environ):
        """Nothing: the nodes end with the machine of the supervisor."""


class SpoolHosts(BatchHosts):
    def __init__(self, job, run_dir, environ):
        super().__init__()
        self._run_dir, self._environ = run_dir, environ
        self.all = [Host(name=f"spool{n}", source=f"127.0.0.{n + 1}") for n in range(job.resources.all_nodes)]

    def listen_address(self):
        return "127.0.0.1"

    def start_agent(self, node, argv):
        environ = {**self._environ, "SPOOL_NODE": self.all[node].name}
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=environ, start_new_session=True)

    def start_query(self):
        return None

    def requeue(self, lost):
        self._run_dir.write(self._run_dir.native_id, enqueue(self._run_dir, self._environ).encode())


def enqueue(run_dir, environ):
    """Starts the job script and returns the name of its folder in the spool, which has its process id."""
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=environ["SPOOL_DIR"]))
    with run_dir.job_output.open("ab") as output:
        process = subprocess.Popen(
            ["/bin/sh", str(run_dir.job_script)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**environ, "SPOOL_JOB": folder.name},
            start_new_session=True,
        )
    (folder / "process").write_text(f"{process.pid} {start_time(process.pid)}")
    return folder.name


def pid_of(run_dir):
    """The process of the run's job, if it lives."""
    try:
        pid, started = (Path(os.environ["SPOOL_DIR"]) / run_dir.read_native_id() / "process").read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if str(start_time(int(pid))) == started else None


BACKEND: Backend = Spool()
