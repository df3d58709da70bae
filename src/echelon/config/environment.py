"""Decodes and checks the settings of the environment that ranks run in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.backends import DEFAULT, backend
from echelon.environments import CONTAINERS
from echelon.environments.containers import is_image_address, job_mounts, parse_mount
from echelon.environments.detect import Settings, choose_environment
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.job import EnvironmentSpec, Job
from echelon.shell import format_command

CONTAINER_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"


def environment_spec(settings: Settings, cwd: str) -> tuple[str, EnvironmentSpec]:
    """The name of the environment and its parameters. Raises ConfigError for settings that contradict each other."""
    name = choose_environment(settings)
    _check_pyxis(name, settings)
    around = EnvironmentSpec(modules=settings.get("modules") or (), setup=settings.get("setup") or ())
    if name == "venv":
        return name, replace(around, venv=_absolute_path(settings.get("venv"), cwd))
    if name == "conda":
        return name, replace(around, conda=_conda_name_or_path(settings.get("conda"), cwd))
    return name, _container_spec(around, name, settings, cwd) if name in CONTAINERS else around


def _container_spec(around: EnvironmentSpec, name: str, settings: Settings, cwd: str) -> EnvironmentSpec:
    return replace(
        around,
        image=_image_path_or_address(name, settings, cwd),
        mounts=tuple(_absolute_mount(text, settings, cwd) for text in settings.get("mount") or ()),
        workdir=settings.get("container_workdir"),
        container_name=_checked_container_name(settings),
        writable=settings.get("container_writable"),
        root=settings.get("container_root"),
        prefix=settings.get("container_exec") or (),
    )


def choose_python(name: str, enclosure: EnvironmentSpec, settings: Settings, default: str) -> str:
    """The Python of the ranks, as a path or name inside the environment."""
    given: str | None = settings.get("python")
    if given:
        return given
    if name == "venv":
        return f"{enclosure.venv}/bin/python"
    if name == "conda":
        return "python"
    return "python3" if name in CONTAINERS else default


def _absolute_path(text: str, cwd: str) -> str:
    return os.path.normpath(Path(cwd) / os.path.expanduser(text))  # noqa: PTH111  Path.expanduser raises for ~nobody


def _conda_name_or_path(text: str, cwd: str) -> str:
    """A text with a slash or a leading ~ is a path; any other text is the name of a conda environment."""
    return _absolute_path(text, cwd) if "/" in text or text.startswith("~") else text


def _image_path_or_address(name: str, settings: Settings, cwd: str) -> str | None:
    image: str | None = settings.get("image")
    if image is None or not is_image_address(image, name):
        return None if image is None else _absolute_path(image, cwd)
    if name == "enroot":
        raise ConfigError(
            f"enroot cannot use {image} directly",
            origin=settings.origin("image"),
            why="it creates containers from image files only",
            hint=f"enroot import {image if '://' in image else f'docker://{image}'}, then --image FILE.sqsh",
        )
    return image


def _absolute_mount(text: str, settings: Settings, cwd: str) -> str:
    try:
        mount = parse_mount(text)
        source = _absolute_path(mount.source, cwd)
        parse_mount(f"{source}:{mount.target}")
    except ValueError as error:
        raise ConfigError(
            f"mount is {text!r}", origin=settings.origin("mount"), why=str(error), hint="--mount /data:/data:ro"
        ) from error
    return replace(mount, source=source).option_value()


def _checked_container_name(settings: Settings) -> str | None:
    name: str | None = settings.get("container_name")
    if name is not None and not re.fullmatch(CONTAINER_NAME, name):
        raise ConfigError(
            f"invalid container name {name!r}",
            origin=settings.origin("container_name"),
            why="only letters, digits, dot, dash and underscore are allowed",
        )
    return name


def _check_pyxis(name: str, settings: Settings) -> None:
    if name != "pyxis":
        return
    if not backend(settings.get("on") or DEFAULT).may_use_srun:
        raise ConfigError(
            "pyxis is a part of Slurm",
            origin=f"{settings.origin('env')}; the scheduler: {settings.origin('on')}",
            hint="--env enroot, which runs the same images without Slurm",
        )
    if settings.get("modules"):
        raise ConfigError(
            "--modules has no effect with --env pyxis",
            origin=f"{settings.origin('modules')}; {settings.origin('env')}",
            why="srun starts the whole command inside the container, but modules are outside",
            hint="--env enroot, which loads modules first; --setup lines run inside the image",
        )


SQUASHFS = b"hsqs"
LOCAL_DISK_NAMES = frozenset({"tmp", "var", "scratch", "dev", "run"})
FORBIDDEN_IN_MOUNTS = ":, \t\n"


def check_environment(job: Job, origins: Mapping[str, str], run_path: Path, *, here: bool) -> list[str]:
    """Raises EnvironmentProblem for a path that is certainly missing. Returns warnings for paths that only the nodes
    may have. `here`: the ranks run on this machine."""
    if job.environment in CONTAINERS - {"container"}:
        _check_mountable(run_path, "set ECHELON_RUNS to a folder without such characters")
        _check_mountable(Path(job.cwd), "cd to a folder without such characters in its path")
    if not backend(job.scheduler).shares_file_system:
        return []
    lacking = [found for found in _required_paths(job) if not Path(found[1]).exists()]
    for key, path, what, hint in lacking:
        if here or is_shared(path):
            raise EnvironmentProblem(f"no {what} at {path}", origin=origins.get(key), hint=hint)
    _check_squashfs(job, origins)
    return [f"no {what} at {path} on this machine; the nodes must have one there" for _, path, what, _ in lacking]


def _required_paths(job: Job) -> Iterator[tuple[str, str, str, str]]:
    """Each required path: its setting, the path, a name for messages, and a hint."""
    enclosure = job.enclosure
    if enclosure.venv:
        hint = format_command(("python3", "-m", "venv", enclosure.venv))
        yield "venv", f"{enclosure.venv}/bin/python", "virtual environment", hint
    if enclosure.image and not is_image_address(enclosure.image, job.environment):
        hint = "apptainer build FILE.sif docker://NAME, or --image docker://NAME"
        yield "image", enclosure.image, "image", hint if job.environment != "enroot" else "enroot import docker://NAME"
    for mount in job_mounts(job):
        yield "mount", mount.source, "folder to mount", f"mkdir -p {mount.source}, or change --mount"


def is_shared(path: str) -> bool:
    """Whether the path is probably on a shared file system: its first folder exists here, and its name is not
    usual for a local disk. A local disk of the nodes, such as /raid, often does not exist here."""
    first = Path(*Path(path).parts[:2])
    return first.exists() and not is_local_disk_name(first.name)


def is_local_disk_name(first_folder: str) -> bool:
    return first_folder in LOCAL_DISK_NAMES or first_folder.startswith("local")


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
            f"{image} is not an enroot image",
            origin=origins.get("image"),
            why="it is not a squashfs file",
            hint="enroot import docker://NAME",
        )


def _check_mountable(path: Path, hint: str) -> None:
    found = sorted(set(FORBIDDEN_IN_MOUNTS) & set(str(path)))
    if found:
        raise ConfigError(f"{path} cannot be mounted into a container", why=f"it contains {found[0]!r}", hint=hint)
