"""A command taken into the job's environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echelon.environments import SHELL
from echelon.job import Job
from echelon.run_dir import RunDir


def inside(job: Job, run_path: Path, argv: Sequence[str]) -> list[str]:
    """By a shell of its own name: the run's folder may lie where nothing may be executed."""
    if not job.is_enclosed:
        return list(argv)
    return [SHELL, str(RunDir(run_path).node_script), *argv]
