"""`--container-exec`: a container of any kind, by the words that put a command into it."""

from __future__ import annotations

from echelon.command import variable, words
from echelon.environments.entry import Entry
from echelon.job import Job

PLACES = {"{run}": variable("run"), "{cwd}": variable("cwd")}
"""What may stand in the words: the run's folder and the working directory, which the container has to see."""


def entry(job: Job) -> Entry:
    return Entry(
        place=f"the container of {job.enclosure.prefix[0]}",
        lines=(
            "",
            "# The container",
            f"run=${{ECHELON_FOLDER:-${{0%/*}}}} cwd={words(job.cwd)}",
            '[ -d "$cwd" ] || cwd=$run # over ssh it may not be there',
        ),
        wrapper=tuple(map(_filled, job.enclosure.prefix)),
    )


def _filled(word: str) -> str:
    for name, place in PLACES.items():
        word = word.replace(name, place)
    return word
