"""`--venv DIR`: a virtual environment, without its own script, which only sets these variables."""

from __future__ import annotations

from echelon.command import exports, words
from echelon.environments.entry import Entry, refuse
from echelon.job import Job


def entry(job: Job) -> Entry:
    folder = job.enclosure.venv or ""
    place = f"the virtual environment {folder}"
    hint = words("python3", "-m", "venv", folder) + ", where this node sees it; or another --venv"
    return Entry(
        place=place,
        lines=(
            "",
            "# The virtual environment",
            f"[ -x {words(f'{folder}/bin/python')} ] || {refuse(f'no virtual environment at {folder}', hint)}",
            *exports({"VIRTUAL_ENV": folder}),
            f'export PATH={words(f"{folder}/bin")}:"$PATH"',
            "unset PYTHONHOME",
        ),
    )
