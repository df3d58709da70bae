"""What each node of a plain script does: it enters the job's environment and folder, and starts a launcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon.command import words
from echelon.job import Job
from echelon.plain import launcher_name

OWN_ADDRESS = """own=$(ip -o route get "$MASTER_ADDR" | sed 's/.* src \\([^ ]*\\).*/\\1/')"""
"""The one that others reach a node at; the name that it goes by may lead to its own loopback, or nowhere."""
CONDA = 'eval "$("${CONDA_EXE:-conda}" shell.bash hook)"'
"""What `conda init` would have put into the shell files of a person, which nodes do not read."""


def entering(job: Job, folder: str | None) -> Iterator[str]:
    """What a node does before anything else; `folder` is where its ranks start, if it is not there already."""
    enclosure = job.enclosure
    modules = [words("module", "load", *enclosure.modules)] if enclosure.modules else []
    venv = [words(".", f"{enclosure.venv.rstrip('/')}/bin/activate")] if enclosure.venv is not None else []
    conda = [CONDA, words("conda", "activate", enclosure.conda)] if enclosure.conda is not None else []
    there = [words("cd", folder)] if folder is not None else []
    if modules:
        yield "type module >/dev/null 2>&1 || . /etc/profile # shells that are no login shells may lack it"
    if enclosure.setup:
        yield from _all_or_exit(modules)
        yield from enclosure.setup
        modules = []
    yield from _all_or_exit([*modules, *venv, *conda, *there])


def _all_or_exit(commands: Sequence[str]) -> Iterator[str]:
    if commands:
        yield f"{' && '.join(commands)} || exit"


def node_function(job: Job, *body: str, folder: str | None = None) -> Iterator[str]:
    """`node NUMBER`: what every node runs. The words of its ranks are expanded there."""
    yield "# What each node runs, given its number. What differs between nodes must be expanded there, not here."
    yield "node() {"
    yield from (f"  {line}" for line in entering(job, folder))
    if job.launching.rdzv == "c10d" and launcher_name(job) == "torchrun":
        yield f"  is_host=$((! $1)) {OWN_ADDRESS} # torchrun would go by host names"
    yield from (f"  {line}" for line in body)
    yield "}"
