"""What can be known to be missing before anything is submitted: images, sources of mounts, virtual environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from echelon.command import typed
from echelon.environments import CONTAINERS
from echelon.environments.images import is_address
from echelon.environments.mounts import mounts_of
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.job import Job

SQUASHFS = b"hsqs"
NODES_OWN = frozenset({"tmp", "var", "scratch", "dev", "run"})
NOT_IN_MOUNTS = ":, \t\n"


def check_enclosure(job: Job, origins: Mapping[str, str], run_path: Path, *, here: bool) -> list[str]:
    """Raises what is certain; a warning for what only the nodes may have. `here`: this machine is the node."""
    if job.environment in CONTAINERS - {"container"}:
        _check_plain(run_path, "ECHELON_RUNS=DIR with a plain name puts runs elsewhere")
        _check_plain(Path(job.cwd), "go to a folder with a plain name")
    if job.scheduler == "ssh":
        return []
    lacking = [found for found in _needed(job) if not Path(found[1]).exists()]
    for key, path, what, hint in lacking:
        if here or _is_shared(path):
            raise EnvironmentProblem(f"no {what} at {path}", origin=origins.get(key), hint=hint)
    _check_squashfs(job, origins)
    return [f"no {what} at {path} on this machine; the nodes must have one there" for _, path, what, _ in lacking]


def _needed(job: Job) -> Iterator[tuple[str, str, str, str]]:
    """The setting, the path, what it is, and what to do about it."""
    enclosure = job.enclosure
    if enclosure.venv:
        hint = typed(("python3", "-m", "venv", enclosure.venv))
        yield "venv", f"{enclosure.venv}/bin/python", "virtual environment", hint
    if enclosure.image and not is_address(enclosure.image, job.environment):
        hint = "enroot import or apptainer build makes one; docker://NAME is fetched by itself"
        yield "image", enclosure.image, "image", hint if job.environment != "enroot" else "enroot import docker://NAME"
    for mount in mounts_of(job):
        yield "mount", mount.source, "folder to mount", f"mkdir {mount.source}, or another --mount"


def _is_shared(path: str) -> bool:
    """And not on a disk of the nodes' own, as a rule; such as /raid, whose first folder is not even here."""
    first = Path(*Path(path).parts[:2])
    return first.exists() and not is_nodes_own(first.name)


def is_nodes_own(first_folder: str) -> bool:
    return first_folder in NODES_OWN or first_folder.startswith("local")


def _check_squashfs(job: Job, origins: Mapping[str, str]) -> None:
    image = Path(job.enclosure.image or "")
    if job.environment != "enroot" or not image.is_file():
        return
    try:
        with image.open("rb") as file:
            head = file.read(len(SQUASHFS))
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot read the image {image}", origin=origins.get("image"), why=str(error)
        ) from error
    if head != SQUASHFS:
        raise EnvironmentProblem(
            f"{image} is no image of enroot's", origin=origins.get("image"), why="it is not a squashfs file",
            hint="enroot import docker://NAME makes one",
        )  # fmt: skip


def _check_plain(path: Path, hint: str) -> None:
    found = sorted(set(NOT_IN_MOUNTS) & set(str(path)))
    if found:
        raise ConfigError(f"{path} cannot be mounted into a container", why=f"there is {found[0]!r} in it", hint=hint)
