"""Where ranks find their project: where the user has it, or in the snapshot that was taken of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.errors import EnvironmentProblem
from echelon.job import Job, ScriptKind
from echelon.run_dir import RunDir


def job_here(run_dir: RunDir) -> Job:
    """The job as its ranks are to run it."""
    job = run_dir.read_job()
    return job if job.project is None or job.code is not None else moved(job, run_dir.code)


def check_code(job: Job, run_dir: RunDir) -> None:
    if job.project is not None and not run_dir.code.is_dir():
        raise EnvironmentProblem(
            "the snapshot of the project is gone", origin=str(run_dir.code),
            hint="start a new run: one without it would not run the same code",
        )  # fmt: skip


def moved(job: Job, code: Path) -> Job:
    """The same job in the snapshot: same folder in it, same script."""
    there = replace(job, code=str(code))
    script = job.script
    is_path = script.kind is ScriptKind.FILE or (script.kind is ScriptKind.COMMAND and "/" in script.target)
    target = moved_path(script.target, there) if is_path else script.target
    folder = inside_project(Path(job.cwd), there) or Path()
    return replace(there, cwd=str(code / folder), script=replace(script, target=target))


def moved_path(text: str, job: Job) -> str:
    """A path of the user's as it is right in the snapshot; one that leads out of the project stays where it led.

    A relative one that stays inside is right as it is, because the ranks start in the same folder of the copy.
    """
    whole = Path(os.path.normpath(Path(submit_dir(job), text)))
    place = inside_project(whole, job)
    if place is None:
        return text if Path(text).is_absolute() else str(whole)
    return str(Path(job.code or "") / place) if Path(text).is_absolute() else text


def inside_project(path: Path, job: Job) -> Path | None:
    """Its place in the project, also where a link above it leads there: /home may be one."""
    for spelling in (path, Path(os.path.realpath(path.parent)) / path.name):
        if spelling.is_relative_to(job.project or "/nowhere"):
            return spelling.relative_to(job.project or "/nowhere")
    return None


def submit_dir(job: Job) -> str:
    """The folder that the run was started from."""
    if job.project is None or job.code is None or not Path(job.cwd).is_relative_to(job.code):
        return job.cwd
    return str(Path(job.project) / Path(job.cwd).relative_to(job.code))


def python_path(environ: Mapping[str, str], job: Job) -> list[str]:
    """The entries of PYTHONPATH; in a snapshot, with those in front that would lead Python back to the project."""
    given = environ.get("PYTHONPATH")
    entries = given.split(os.pathsep) if given else []
    if job.project is None or job.code is None:
        return entries
    editable = (moved_path(folder, job) for folder in editable_folders())
    here = [folder for folder in editable if Path(folder).is_relative_to(job.code) and Path(folder).is_dir()]
    return list(dict.fromkeys([*(moved_path(entry, job) for entry in entries), *here]))


def editable_folders() -> Iterable[str]:
    """Where this Python finds packages that were installed with `pip install -e`: by folder, or by a table of names."""
    yield from (entry for entry in sys.path if Path(entry).is_absolute())
    tables = [getattr(module, "MAPPING", {}) for name, module in sys.modules.items() if name.startswith("__editable__")]
    yield from (str(Path(place).parent) for table in tables for place in table.values())
