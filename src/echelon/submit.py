"""From a Job to a run: its directory filled, its script handed to the scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echelon.bundle import node_side
from echelon.errors import ConfigError
from echelon.events import Kind, append_event
from echelon.inherit import without_outer_run
from echelon.job import Job
from echelon.observe.find import remember
from echelon.registry import member
from echelon.run_dir import RunDir, cannot_write, new_run_id
from echelon.snapshot import pack
from echelon.version import __version__

NO_ID = b" " * 127 + b"\n"


def start(job: Job, origins: Mapping[str, str], secrets: Mapping[str, str], runs: Path) -> RunDir:
    """A new run. What was written before a failure is taken away again."""
    run_dir = RunDir(runs / new_run_id(job.name))
    run_dir.create()
    try:
        run_dir.write_description(job, _facts(run_dir, origins))
        run_dir.write(run_dir.node_side, node_side())
        if job.snapshot:
            run_dir.write(run_dir.code, pack(job, runs))
        launch_attempt(job, run_dir, secrets)
    except BaseException:
        if not run_dir.read_native_id():
            _take_away(run_dir)
        raise
    remember(run_dir)
    return run_dir


def resume(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    """The next attempt of a run that has ended, with what is in the environment now for its secrets."""
    job = run_dir.read_job()
    missing = [name for name in job.secret_env if name not in environ]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not set",
            origin=str(run_dir.description),
            why="the run was started with it; values that look like secrets are never written down",
            hint=f"export {missing[0]}=..., then echelon resume {run_dir.run_id}",
        )
    launch_attempt(job, run_dir, {})


def cancel(run_dir: RunDir) -> bool:
    """Asks for the end of the run; false if there was nothing left to end. The mark comes first: who sees the
    job end then knows that a person asked for it."""
    scheduler = member("scheduler", run_dir.read_job().scheduler)
    run_dir.write(run_dir.cancel_mark, f"{time.time():.3f}\n".encode())
    return bool(scheduler.cancel(run_dir))


def launch_attempt(job: Job, run_dir: RunDir, secrets: Mapping[str, str]) -> None:
    scheduler = member("scheduler", job.scheduler)
    number = run_dir.claim_attempt()
    run_dir.cancel_mark.unlink(missing_ok=True)
    run_dir.write(run_dir.job_script, scheduler.render(job, run_dir).encode(errors="surrogateescape"), mode=0o700)
    try:
        append_event(run_dir.events, Kind.SUBMITTED, number, scheduler=job.scheduler)
    except OSError as error:
        raise cannot_write(run_dir.events, error) from error
    run_dir.write(run_dir.native_id, NO_ID)  # room for it: a job that runs must never be without its id
    native_id = scheduler.submit(run_dir, {**without_outer_run(os.environ), **secrets})
    with run_dir.native_id.open("r+b") as file:
        file.write(native_id.encode())


def _facts(run_dir: RunDir, origins: Mapping[str, str]) -> dict[str, Any]:
    return {
        "run_id": run_dir.run_id,
        "origins": dict(origins),
        "versions": {"echelon": __version__, "python": sys.version.split()[0]},
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    if not any((folder / ".git").exists() for folder in (Path.cwd(), *Path.cwd().parents)):
        return None
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def _take_away(run_dir: RunDir) -> None:
    import shutil

    shutil.rmtree(run_dir.path, ignore_errors=True)
