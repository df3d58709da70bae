"""`--launcher ranks`: our supervisor and agents start the ranks themselves."""

from __future__ import annotations

from pathlib import Path

from echelon.command import Command
from echelon.job import Job
from echelon.run_dir import RunDir


def launch(job: Job, run_path: Path, attempt: int) -> Command:
    """What the job script runs, once, on the first node."""
    argv = (job.python, str(RunDir(run_path).node_side), "supervise", str(run_path), str(attempt), "0")
    return Command(argv=argv, env=job.env)
