"""The folder that ranks run in: the user's folder or the snapshot. Packs it for ssh hosts, links it for arrays."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.errors import EnvironmentProblem
from echelon.job import Job, ScriptKind
from echelon.run_dir import RunDir, write_error

if TYPE_CHECKING:
    import tarfile


def read_runnable_job(run_dir: RunDir) -> Job:
    """The job as its ranks run it: in the snapshot, if the run has one."""
    job = run_dir.read_job()
    return job if job.project is None or job.code is not None else job_in_snapshot(job, run_dir.code)


def check_snapshot(job: Job, run_dir: RunDir) -> None:
    if job.project is not None and not run_dir.code.is_dir():
        raise EnvironmentProblem(
            "the snapshot of the project is missing",
            origin=str(run_dir.code),
            hint="start a new run: this one cannot run the same code without its snapshot",
        )


def job_in_snapshot(job: Job, code: Path) -> Job:
    """The job with working directory and script moved to the same places in the snapshot."""
    moved = replace(job, code=str(code))
    script = job.script
    is_path = script.kind is ScriptKind.FILE or (script.kind is ScriptKind.COMMAND and "/" in script.target)
    target = path_in_snapshot(script.target, moved) if is_path else script.target
    folder = path_in_project(Path(job.cwd), moved) or Path()
    return replace(moved, cwd=str(code / folder), script=replace(script, target=target))


def path_in_snapshot(text: str, job: Job) -> str:
    """The path of the same file in the snapshot. A path outside of the project keeps its target.

    A relative path inside of the project stays unchanged: the ranks start in the same folder of the snapshot.
    """
    whole = Path(os.path.normpath(Path(submit_dir(job), text)))
    place = path_in_project(whole, job)
    if place is None:
        return text if Path(text).is_absolute() else str(whole)
    return str(Path(job.code or "") / place) if Path(text).is_absolute() else text


def path_in_project(path: Path, job: Job) -> Path | None:
    """The path relative to the project; None if it is outside. Also resolves links above the file, such as /home."""
    for spelling in (path, Path(os.path.realpath(path.parent)) / path.name):
        if spelling.is_relative_to(job.project or "/nowhere"):
            return spelling.relative_to(job.project or "/nowhere")
    return None


def submit_dir(job: Job) -> str:
    """The folder in which the user started the run."""
    if job.project is None or job.code is None or not Path(job.cwd).is_relative_to(job.code):
        return job.cwd
    return str(Path(job.project) / Path(job.cwd).relative_to(job.code))


def python_path(environ: Mapping[str, str], job: Job) -> list[str]:
    """The entries of PYTHONPATH. With a snapshot, moves entries of the project to it.

    Then also adds the snapshot's folders of editable installs, so that Python does not import from the project.
    """
    given = environ.get("PYTHONPATH")
    entries = given.split(os.pathsep) if given else []
    if job.project is None or job.code is None:
        return entries
    editable = (path_in_snapshot(folder, job) for folder in editable_folders())
    here = [folder for folder in editable if Path(folder).is_relative_to(job.code) and Path(folder).is_dir()]
    return list(dict.fromkeys([*(path_in_snapshot(entry, job) for entry in entries), *here]))


def editable_folders() -> Iterable[str]:
    """The folders of packages installed with `pip install -e`: from sys.path, and from the tables of import hooks."""
    yield from (entry for entry in sys.path if Path(entry).is_absolute())
    tables = [getattr(module, "MAPPING", {}) for name, module in sys.modules.items() if name.startswith("__editable__")]
    yield from (str(Path(place).parent) for table in tables for place in table.values())


def pack_snapshot(code: Path, archive: Path) -> None:
    """Writes the archive atomically."""
    import tarfile  # only here and below: few processes need it, and it takes long

    part = archive.with_name(f".{archive.name}.{os.urandom(4).hex()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for path in sorted(code.iterdir()):
            tar.add(path, arcname=path.name, filter=_without_owner)
    part.replace(archive)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack_snapshot(archive: Path, code: Path) -> None:
    """Extracts the archive, then deletes it."""
    import tarfile

    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "tar_filter"):
            tar.extractall(code, filter="tar")
        else:
            tar.extractall(code)  # noqa: S202  our own archive, made by pack
    archive.unlink()


# Files that all runs of an array share


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Links the file. Copies with the permissions of the source if it cannot link. Raises EnvironmentProblem.

    Some file systems have no hard links; others limit the number of links to one file.
    """
    try:
        os.link(source, target)
    except OSError:
        try:
            _copy(source, target)
        except OSError as error:
            raise write_error(Path(target), error) from error


def _copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    with Path(source).open("rb") as reader, os.fdopen(_create_private_file(target), "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        os.fchmod(writer.fileno(), os.fstat(reader.fileno()).st_mode & 0o777)


def _create_private_file(target: str | os.PathLike[str]) -> int:
    """Opens a new file that only its owner can read from the start. Raises OSError if it exists."""
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
