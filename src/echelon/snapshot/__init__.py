"""A copy of the project in the run directory, for the ranks to run: what is edited later changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from echelon.errors import ConfigError
from echelon.job import Job, ScriptKind
from echelon.node.project import inside_project
from echelon.run_dir import RunDir
from echelon.snapshot import git
from echelon.snapshot.choice import JUNK, Chosen, Entry, Why, choose, in_bytes, is_junk, is_secret, link_text
from echelon.snapshot.copying import copy_all, link_all
from echelon.wording import counted, sized

__all__ = ("Taken", "link_all", "project_of", "take")

FILES_PER_SNAPSHOT = 10  # of the largest size, all of it may have as much
MOST_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class Taken:
    facts: dict[str, Any]
    """For run.json."""
    remarks: tuple[str, ...]
    """For the person who asked for it."""


def project_of(cwd: Path) -> Path:
    """The repository around it, or the folder itself."""
    return git.repository_of(cwd) or cwd


def take(job: Job, run_dir: RunDir, runs: Path) -> Taken:
    """Makes `code/` and `code.diff`. Raises ConfigError for a script that would not be in it, and for too much."""
    project = Path(job.project or job.cwd)
    _check_script_is_inside(job)
    paths, words = _listed(project)
    entries = list(_entries(project, (path for path in paths if not (project / path).is_relative_to(runs))))
    most_bytes = in_bytes(job.snapshot_max)
    chosen = choose(entries, most_bytes)
    _check_size(chosen, project, most_bytes)
    _check_script_is_taken(job, chosen)
    copy_all(chosen.taken, project, run_dir.code)
    (run_dir.code / _folder_of(job)).mkdir(parents=True, exist_ok=True)  # there may be no file in it
    facts = {"project": str(project), "files": len(chosen.taken), "bytes": chosen.total_bytes}
    left_out = {str(entry.path): why.value for entry, why in chosen.left}
    recorded = _record(run_dir, project, most_bytes) if words is None else {}
    remarks = [*([words] if words else []), *_remarks(chosen, project, job), *_not_there(project, runs, words)]
    return Taken(facts={**facts, **recorded, "left_out": left_out}, remarks=tuple(remarks))


def _folder_of(job: Job) -> Path:
    return inside_project(Path(job.cwd), job) or Path()


# What there is


def _listed(project: Path) -> tuple[list[PurePath], str | None]:
    """And, where git was not asked or had no answer, a word on that; an empty one if nobody expects git here."""
    try:
        return list(git.files(project)), None
    except git.GitSilent as silence:
        here = git.repository_of(project) is not None
        words = f"git does not say which files are the project's ({silence}): all of {project} is taken" if here else ""
        return list(_walked(project)), words


def _walked(project: Path) -> Iterator[PurePath]:
    for parent, folders, names in os.walk(project):
        here = Path(parent)
        folders[:] = [name for name in folders if name not in JUNK]
        links = [name for name in folders if (here / name).is_symlink()]
        yield from ((here / name).relative_to(project) for name in (*names, *links))


def _entries(project: Path, paths: Iterator[PurePath]) -> Iterator[Entry]:
    """Of those that are there: git also lists files that were deleted. Pipes and sockets are no code."""
    for path in paths:
        whole = project / path
        if whole.is_symlink():
            yield Entry(path=path, link=str(whole.readlink()))
        elif whole.is_file():
            yield Entry(path=path, size=whole.stat().st_size)


def _record(run_dir: RunDir, project: Path, most_bytes: int) -> dict[str, Any]:
    """The commit, and what was changed since, but nothing of a secret or a large file."""
    try:
        commit, changed = git.commit_of(project), git.changed(project)
        kept_out = [path for path in changed if is_secret(path) or _size(project / path) > most_bytes]
        run_dir.write(run_dir.code_diff, git.difference(project, kept_out))
    except git.GitSilent:
        return {"commit": None}  # nothing has been committed yet: all there is is in the snapshot
    return {"commit": commit, "dirty": bool(changed)}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


# What is refused


def _check_script_is_inside(job: Job) -> None:
    script = Path(os.path.normpath(Path(job.cwd, job.script.target)))
    if job.script.kind is ScriptKind.FILE and inside_project(script, job) is None:
        raise ConfigError(
            f"the script {job.script.target} is not in the project, so a snapshot would lack it",
            origin=f"--snapshot; the project is {job.project}",
            hint=f"cd {script.parent} first",
        )


def _check_script_is_taken(job: Job, chosen: Chosen) -> None:
    script = inside_project(Path(os.path.normpath(Path(job.cwd, job.script.target))), job)
    if job.script.kind is ScriptKind.FILE and script is not None and not _has(chosen, script):
        raise ConfigError(
            f"the script {job.script.target} is not in the snapshot", origin="--snapshot",
            why=_why_missing(chosen, script), hint="git add -f, another name, or no --snapshot",
        )  # fmt: skip


def _has(chosen: Chosen, script: PurePath) -> bool:
    """A script may be a folder with a __main__.py, or lie behind a link."""
    whole = {script, *script.parents} - {PurePath()}
    return any(entry.path in whole or script in entry.path.parents for entry in chosen.taken)


def _why_missing(chosen: Chosen, script: PurePath) -> str:
    reasons = {entry.path: why for entry, why in chosen.left}
    sentences = {Why.SECRET: "by its name it is a secret", Why.LARGE: "it is too large"}
    return sentences[reasons[script]] if script in reasons else "git ignores it"


def _check_size(chosen: Chosen, project: Path, most_bytes: int) -> None:
    limit = most_bytes * FILES_PER_SNAPSHOT
    if chosen.total_bytes > limit:
        largest = max(chosen.taken, key=lambda entry: entry.size)
        raise ConfigError(
            f"the snapshot would have {sized(chosen.total_bytes)}", origin=f"--snapshot of {project}",
            why=f"the most is {sized(limit)}; the largest file is {largest.path}, {sized(largest.size)}",
            hint="name data and checkpoints in .gitignore, or --snapshot-max SIZE, a tenth of what all may have",
        )  # fmt: skip


# What is said


def _remarks(chosen: Chosen, project: Path, job: Job) -> Iterator[str]:
    files, size = counted(len(chosen.taken), "file"), sized(chosen.total_bytes)
    yield f"snapshot of {project}: {files}, {size}; the ranks run there"
    secrets, large = chosen.left_for(Why.SECRET), chosen.left_for(Why.LARGE)
    if secrets:
        yield f"not in the snapshot, by their names secrets: {_named(secrets)}; --set NAME=VALUE reaches the ranks"
    if large:
        sizes = f"larger than {sized(in_bytes(job.snapshot_max))}"
        yield f"not in the snapshot, {sizes}: {_named(large)}; --snapshot-max SIZE takes them in"
    outside = [entry for entry in chosen.taken if entry.link is not None and link_text(entry, project)[1]]
    if outside:
        yield f"links that lead out of the project stay links: {_named(outside)}"


def _not_there(project: Path, runs: Path, words: str | None) -> Iterator[str]:
    """What a script may look for by a relative path."""
    paths = git.ignored(project) if words is None else []
    wanted = [path for path in paths if not is_junk(path) and not is_secret(path) and path.suffix != ".pyc"]
    named = [Entry(path=path) for path in wanted if not runs.is_relative_to(project / path)]
    if named:
        yield f"not in the snapshot, ignored by git: {_named(named)}; scripts find them at $ECHELON_SUBMIT_DIR"


def _named(entries: Sequence[Entry]) -> str:
    shown = ", ".join(str(entry.path) for entry in entries[:MOST_NAMES])
    return f"{shown} and {len(entries) - MOST_NAMES} more" if len(entries) > MOST_NAMES else shown
