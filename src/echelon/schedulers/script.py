"""What every job script ends in: the supervisor, outside of any environment."""

from __future__ import annotations

from echelon.command import Command
from echelon.job import Job
from echelon.run_dir import RunDir


def supervisor_of(job: Job, run_dir: RunDir) -> Command:
    return node_side_of(job, run_dir, "supervise")


def node_side_of(job: Job, run_dir: RunDir, part: str) -> Command:
    """A part of the node side that the job script runs itself, outside of any container."""
    return Command(argv=(job.outer_python, "-I", str(run_dir.node_side), part, str(run_dir.path)))


def plain_script(job: Job, run_dir: RunDir, remark: str) -> str:
    """For a job that is a process on this machine."""
    lines = (
        "#!/bin/sh",
        f"# {job.name}: {remark}",
        f"{Command(argv=('cd', job.cwd)).shell_lines()[0]} || exit",
        *supervisor_of(job, run_dir).shell_lines(replace_shell=True),
    )
    return "\n".join(lines) + "\n"
