"""Settings to what the ranks run in, strictly; the paths in it as seen from the working directory."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from echelon.environments import CONTAINERS
from echelon.environments.choice import Wishes, environment_of
from echelon.environments.images import is_address
from echelon.environments.mounts import parse_mount
from echelon.errors import ConfigError
from echelon.job import Enclosure

CONTAINER_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
WITH_SLURM = ("slurm", "allocation")


def enclosure_of(wishes: Wishes, cwd: str) -> tuple[str, Enclosure]:
    """The name of the environment, and what it is."""
    name = environment_of(wishes)
    _check_pyxis(name, wishes)
    around = Enclosure(modules=wishes.get("modules") or (), setup=wishes.get("setup") or ())
    if name == "venv":
        return name, replace(around, venv=_path(wishes.get("venv"), cwd))
    if name == "conda":
        return name, replace(around, conda=_conda(wishes.get("conda"), cwd))
    return name, _container(around, name, wishes, cwd) if name in CONTAINERS else around


def _container(around: Enclosure, name: str, wishes: Wishes, cwd: str) -> Enclosure:
    return replace(
        around,
        image=_image(name, wishes, cwd),
        mounts=tuple(_mount(text, wishes, cwd) for text in wishes.get("mount") or ()),
        workdir=wishes.get("container_workdir"),
        container_name=_container_name(wishes),
        writable=wishes.get("container_writable"),
        root=wishes.get("container_root"),
        prefix=wishes.get("container_exec") or (),
    )


def python_of(name: str, enclosure: Enclosure, wishes: Wishes, default: str) -> str:
    """The ranks' Python, as they find it inside."""
    given: str | None = wishes.get("python")
    if given:
        return given
    if name == "venv":
        return f"{enclosure.venv}/bin/python"
    if name == "conda":
        return "python"
    return "python3" if name in CONTAINERS else default


def _path(text: str, cwd: str) -> str:
    return os.path.normpath(Path(cwd) / Path(text).expanduser())


def _conda(text: str, cwd: str) -> str:
    """A name, unless it is written as a path."""
    return _path(text, cwd) if "/" in text or text.startswith("~") else text


def _image(name: str, wishes: Wishes, cwd: str) -> str | None:
    image: str | None = wishes.get("image")
    if image is None or not is_address(image, name):
        return None if image is None else _path(image, cwd)
    if name == "enroot":
        raise ConfigError(
            f"enroot makes no container of {image}",
            origin=wishes.origin("image"),
            why="it takes files alone",
            hint=f"enroot import {image if '://' in image else f'docker://{image}'}, and --image with the file",
        )
    return image


def _mount(text: str, wishes: Wishes, cwd: str) -> str:
    try:
        mount = parse_mount(text)
        source = _path(mount.source, cwd)
        parse_mount(f"{source}:{mount.target}")
    except ValueError as error:
        raise ConfigError(
            f"mount is {text!r}", origin=wishes.origin("mount"), why=str(error), hint="--mount /data:/data:ro"
        ) from error
    return replace(mount, source=source).spelled()


def _container_name(wishes: Wishes) -> str | None:
    name: str | None = wishes.get("container_name")
    if name is not None and not re.fullmatch(CONTAINER_NAME, name):
        raise ConfigError(
            f"{name!r} cannot be the name of a container",
            origin=wishes.origin("container_name"),
            why="it becomes a folder: letters, digits, dot, dash and underscore",
        )
    return name


def _check_pyxis(name: str, wishes: Wishes) -> None:
    if name != "pyxis":
        return
    if (wishes.get("on") or "local") not in WITH_SLURM:
        raise ConfigError(
            "pyxis is a part of Slurm",
            origin=f"{wishes.origin('env')}; the scheduler: {wishes.origin('on')}",
            hint="--env enroot starts the same images without it",
        )
    if wishes.get("modules"):
        raise ConfigError(
            "modules cannot be loaded before pyxis has made the container",
            origin=f"{wishes.origin('modules')}; {wishes.origin('env')}",
            why="srun puts the whole command into it, and modules are outside",
            hint="--env enroot loads them first; lines of --setup run inside of the image",
        )
