"""`--launcher ranks`: our supervisor and agents start the ranks themselves."""

from __future__ import annotations

from pathlib import Path

from echelon.command import Command
from echelon.job import Job
from echelon.run_dir import RunDir


def launch(job: Job, run_path: Path) -> Command:
    """What the job script runs, on the first node; -I keeps the ranks' variables away from our own modules."""
    return Command(argv=(job.python, "-I", str(RunDir(run_path).node_side), "supervise", str(run_path)))
