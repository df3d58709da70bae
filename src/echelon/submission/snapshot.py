"""Copies the project into the run directory, for the ranks to run."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.job import Job, ScriptKind
from echelon.record import record
from echelon.run_dir import RunDir, write_error
from echelon.submission import git
from echelon.submission.secret_names import is_secret
from echelon.submission.snapshot_files import (
    JUNK,
    Exclusion,
    ProjectFile,
    Selection,
    copied_link_target,
    is_junk,
    select_files,
)
from echelon.system.project import link_or_copy, path_in_project
from echelon.text import format_size, parse_size, plural

FICLONE = 0x40049409  # from linux/fs.h


def copy_files(entries: Iterable[ProjectFile], project: Path, code: Path) -> None:
    """Creates `code`. A file that was deleted meanwhile is left out without an error."""
    try:
        code.mkdir(mode=0o700)
        for entry in entries:
            target = code / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.link is not None:
                target.symlink_to(copied_link_target(entry, project)[0])
            else:
                _copy_file(project / entry.path, target)
    except OSError as error:
        raise write_error(code, error) from error


def _copy_file(source: Path, target: Path) -> None:
    try:
        reader = source.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot read {source} for the snapshot",
            why=error.strerror,
            hint="add it to .gitignore, or make it readable",
        ) from error
    with reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
        except OSError:  # another file system, or one without clones
            shutil.copyfileobj(reader, writer, 1 << 20)
        status = os.fstat(reader.fileno())
        os.fchmod(writer.fileno(), status.st_mode & 0o777 | 0o600)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def link_snapshot(source: Path, target: Path) -> None:
    """The same snapshot for another run of an array: new folders with hard links to the same files."""
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=link_or_copy)
    except OSError as error:
        raise write_error(target, error) from error


FILES_PER_SNAPSHOT = 10  # the whole snapshot may be this many times as large as --snapshot-max
MAX_LISTED_NAMES = 4


@record
class Snapshot:
    facts: dict[str, Any]
    """For run.json."""
    remarks: tuple[str, ...]
    """Messages for the user."""


def project_root(cwd: Path) -> Path:
    """The root of the repository that contains `cwd`, or `cwd` itself."""
    return git.repository_root(cwd) or cwd


def take_snapshot(job: Job, run_dir: RunDir, runs: Path) -> Snapshot:
    """Creates `code/` and `code.diff`. Raises ConfigError if the script would not be in the snapshot, or if it is too
    large."""
    project = Path(job.project or job.cwd)
    _check_script_is_inside(job)
    paths, words = _list_files(project)
    entries = list(_project_files(project, (path for path in paths if not (project / path).is_relative_to(runs))))
    most_bytes = parse_size(job.snapshot_max)
    chosen = select_files(entries, most_bytes)
    _check_size(chosen, project, most_bytes)
    _check_script_is_selected(job, chosen)
    copy_files(chosen.taken, project, run_dir.code)
    (run_dir.code / _relative_cwd(job)).mkdir(parents=True, exist_ok=True)  # no file may have created it
    facts = {"project": str(project), "files": len(chosen.taken), "bytes": chosen.total_bytes}
    left_out = {str(entry.path): why.value for entry, why in chosen.left}
    recorded = _record_commit(run_dir, project, most_bytes) if words is None else {}
    remarks = [
        *([words] if words else []),
        *_selection_remarks(chosen, project, job),
        *_ignored_remarks(project, runs, words),
    ]
    return Snapshot(facts={**facts, **recorded, "left_out": left_out}, remarks=tuple(remarks))


def _relative_cwd(job: Job) -> Path:
    return path_in_project(Path(job.cwd), job) or Path()


# List the files


def _list_files(project: Path) -> tuple[list[PurePath], str | None]:
    """The files of the project, and None if git listed them. If git fails, all files are listed, with a message that
    explains the failure; the message is empty outside a repository."""
    try:
        return list(git.list_files(project)), None
    except git.GitFailed as silence:
        here = git.repository_root(project) is not None
        words = f"git cannot list the project's files ({silence}): the snapshot has all of {project}" if here else ""
        return list(_walk_files(project)), words


def _walk_files(project: Path) -> Iterator[PurePath]:
    for parent, folders, names in os.walk(project):
        here = Path(parent)
        folders[:] = [name for name in folders if name not in JUNK]
        links = [name for name in folders if (here / name).is_symlink()]
        yield from ((here / name).relative_to(project) for name in (*names, *links))


def _project_files(project: Path, paths: Iterator[PurePath]) -> Iterator[ProjectFile]:
    """Entries of the files that exist: git also lists deleted files. Pipes and sockets are left out."""
    for path in paths:
        whole = project / path
        if whole.is_symlink():
            yield ProjectFile(path=path, link=str(whole.readlink()))
        elif whole.is_file():
            yield ProjectFile(path=path, size=whole.stat().st_size)


def _record_commit(run_dir: RunDir, project: Path, most_bytes: int) -> dict[str, Any]:
    """Writes `code.diff` and returns the commit. Changes to secret and large files are left out."""
    try:
        commit, changed = git.head_commit(project), git.list_changed(project)
        kept_out = [path for path in changed if is_secret(path) or _file_size(project / path) > most_bytes]
        run_dir.write(run_dir.code_diff, git.uncommitted_patch(project, kept_out))
    except git.GitFailed:
        return {"commit": None}  # no commits yet: the snapshot has all files
    return {"commit": commit, "dirty": bool(changed)}


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


# Refuse


def _check_script_is_inside(job: Job) -> None:
    script = Path(os.path.normpath(Path(job.cwd, job.script.target)))
    if job.script.kind is ScriptKind.FILE and path_in_project(script, job) is None:
        raise ConfigError(
            f"the script {job.script.target} is not in the project, so it would be missing from the snapshot",
            origin=f"--snapshot; the project is {job.project}",
            hint=f"cd {script.parent} first",
        )


def _check_script_is_selected(job: Job, chosen: Selection) -> None:
    script = path_in_project(Path(os.path.normpath(Path(job.cwd, job.script.target))), job)
    if job.script.kind is ScriptKind.FILE and script is not None and not _selection_contains(chosen, script):
        raise ConfigError(
            f"the script {job.script.target} is not in the snapshot",
            origin="--snapshot",
            why=_why_missing(chosen, script),
            hint="git add -f, another name, or no --snapshot",
        )


def _selection_contains(chosen: Selection, script: PurePath) -> bool:
    """A script may be a folder with a __main__.py, or be reached through a link."""
    whole = {script, *script.parents} - {PurePath()}
    return any(entry.path in whole or script in entry.path.parents for entry in chosen.taken)


def _why_missing(chosen: Selection, script: PurePath) -> str:
    reasons = {entry.path: why for entry, why in chosen.left}
    sentences = {Exclusion.SECRET: "its name looks like a secret", Exclusion.LARGE: "it is too large"}
    return sentences[reasons[script]] if script in reasons else "git ignores it"


def _check_size(chosen: Selection, project: Path, most_bytes: int) -> None:
    limit = most_bytes * FILES_PER_SNAPSHOT
    if chosen.total_bytes > limit:
        largest = max(chosen.taken, key=lambda entry: entry.size)
        raise ConfigError(
            f"the snapshot would be too large: {format_size(chosen.total_bytes)}",
            origin=f"--snapshot of {project}",
            why=f"the limit is {format_size(limit)}; the largest file is {largest.path}, {format_size(largest.size)}",
            hint="add data and checkpoints to .gitignore, or raise --snapshot-max SIZE; the limit is 10 times SIZE",
        )


# Report


def _selection_remarks(chosen: Selection, project: Path, job: Job) -> Iterator[str]:
    files, size = plural(len(chosen.taken), "file"), format_size(chosen.total_bytes)
    yield f"snapshot of {project}: {files}, {size}; the ranks run there"
    secrets, large = chosen.left_for(Exclusion.SECRET), chosen.left_for(Exclusion.LARGE)
    if secrets:
        names = _format_names(secrets)
        yield f"not in the snapshot, probably secrets: {names}; --set NAME=VALUE passes one to the ranks"
    modules = [str(entry.path) for entry in secrets if entry.path.suffix == ".py"]
    if modules:
        yield f"not importable in the snapshot: {', '.join(modules)}; give a module without secrets another name"
    if large:
        sizes = f"larger than {format_size(parse_size(job.snapshot_max))}"
        yield f"not in the snapshot, {sizes}: {_format_names(large)}; --snapshot-max SIZE includes them"
    outside = [entry for entry in chosen.taken if entry.link is not None and copied_link_target(entry, project)[1]]
    if outside:
        yield f"links to files outside the project stay links: {_format_names(outside)}"


def _ignored_remarks(project: Path, runs: Path, words: str | None) -> Iterator[str]:
    """Ignored files that a script may open by a relative path."""
    paths = git.list_ignored(project) if words is None else []
    wanted = [path for path in paths if not is_junk(path) and not is_secret(path) and path.suffix != ".pyc"]
    named = [ProjectFile(path=path) for path in wanted if not runs.is_relative_to(project / path)]
    if named:
        yield f"not in the snapshot, ignored by git: {_format_names(named)}; scripts find them at $ECHELON_SUBMIT_DIR"


def _format_names(entries: Sequence[ProjectFile]) -> str:
    shown = ", ".join(str(entry.path) for entry in entries[:MAX_LISTED_NAMES])
    return f"{shown} and {len(entries) - MAX_LISTED_NAMES} more" if len(entries) > MAX_LISTED_NAMES else shown
