"""Environments that ranks run in, and what each of them adds to node.sh. Pure."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from echelon.job import Job
from echelon.record import record
from echelon.shell import quote_words

ENVIRONMENTS = (
    "bare",
    "modules",
    "setup",
    "venv",
    "conda",
    "enroot",
    "pyxis",
    "apptainer",
    "singularity",
    "container",
)
CONTAINERS = frozenset({"enroot", "pyxis", "apptainer", "singularity", "container"})
ENTRY_FUNCTIONS = {
    "venv": ("activate", "venv_entry"),
    "conda": ("activate", "conda_entry"),
    "enroot": ("enroot", "entry"),
    "pyxis": ("pyxis", "entry"),
    "apptainer": ("apptainer", "entry"),
    "singularity": ("apptainer", "entry"),
    "container": ("containers", "entry"),
}
"""The module and the function that return the Entry of each environment."""
SHELL = "/bin/bash"


@record
class Entry:
    """The lines and the wrapper command that an environment adds to node.sh."""

    place: str
    """Name of the environment in error messages."""
    lines: tuple[str, ...] = ()
    """Lines of bash. They run on the node, outside the container."""
    wrapper: tuple[str, ...] = ()
    """Command that runs its arguments in the container; empty without a container."""
    is_inside: bool = False
    """Whether the whole of node.sh runs in the container."""

    @property
    def is_image(self) -> bool:
        return self.is_inside or bool(self.wrapper)


def refuse_command(what: str, hint: str) -> str:
    """A call of node.sh's function `refuse`, which prints both texts and exits."""
    return quote_words("refuse", what, hint)


def environment_entry(job: Job) -> Entry:
    if job.environment not in ENTRY_FUNCTIONS:
        return Entry(place="this node")
    module, name = ENTRY_FUNCTIONS[job.environment]
    make_entry: Callable[[Job], Entry] = getattr(importlib.import_module(f"echelon.environments.{module}"), name)
    return make_entry(job)
