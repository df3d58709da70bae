"""What the ranks run in: node.sh takes a command into it, on each node. Pure."""

from __future__ import annotations

from echelon.job import Job

ENVIRONMENTS = ("bare",)
SHELL = "/bin/bash"


def node_script(job: Job) -> str:
    """Modules first, then the user's own lines, then whatever the environment itself needs; the command is "$@"."""
    lines = (
        "#!/bin/bash",
        f"# {job.name}: what every node does before the command that it is given",
        *job.enclosure.setup,
        'exec "$@"',
    )
    return "\n".join(lines) + "\n"
