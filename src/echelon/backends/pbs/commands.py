"""PBS's commands inside a job: finds and runs them, queries the job, and submits its successor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.backends.batch import PBS
from echelon.backends.batch_hosts import QueryProcess, run_command
from echelon.backends.hosts import SchedulerView
from echelon.backends.pbs import parse
from echelon.backends.pbs.environment import KEY_VARIABLE
from echelon.errors import SchedulerError
from echelon.run_dir import RunDir

ANSWER_SECONDS = 3.0  # a host counts as lost a heartbeat timeout plus this time after its last message
CONFIGURATION = Path("/etc/pbs.conf")
DEFAULT_PREFIX = "/opt/pbs"
WAITING_STATES = ("Q", "H", "W", "T")


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
    fields = parse.find_job(parse.parse_jobs(text), job_id) or {}
    is_requeued = fields.get("job_state") in WAITING_STATES or parse.is_rerun(fields)
    return SchedulerView(end_at=parse.walltime_end(fields), is_requeued=is_requeued)


def start_view_query(tool: str, job_id: str, environ: Mapping[str, str]) -> QueryProcess:
    """Runs `qstat -f`, whose text output is the same in all versions."""
    return QueryProcess([tool, "-f", job_id], environ, ANSWER_SECONDS, lambda text: parse_scheduler_view(text, job_id))


def submit_successor(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    """Submits the same script to run after this job, unless the run already has a successor. Raises Unreachable and
    SchedulerError."""
    if not parse.has_successor(environ["PBS_JOBID"], run_dir.read_native_id()):
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
