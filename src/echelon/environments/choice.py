"""Which environment is meant: as asked for, or as what was said about it implies. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from echelon.environments import CONTAINERS
from echelon.errors import ConfigError

WANTED: dict[str, tuple[str, ...]] = {
    "venv": ("venv",),
    "conda": ("conda",),
    "container": ("container_exec",),
    "modules": ("modules",),
}
WANTED |= {"setup": ("setup",), "apptainer": ("image",), "singularity": ("image",)}
WANTED |= dict.fromkeys(("enroot", "pyxis"), ("image", "container_name"))
"""What each is nothing without: one of these settings."""
OF_IMAGES = CONTAINERS - {"container"}
OF_CONTAINERS = ("mount", "container_workdir", "container_name", "container_writable", "container_root")
OF_ANY_CONTAINER = ("container_workdir",)
"""What can be said of a container that we know nothing else about."""


class Wishes(Protocol):
    def get(self, key: str) -> Any: ...

    def origin(self, key: str) -> str: ...


def environment_of(wishes: Wishes) -> str:
    asked: str | None = wishes.get("env")
    if asked == "bare":
        return asked  # which is how to go without what a file says
    meant = list(_meant(wishes))
    if asked is None and len(meant) > 1:
        raise _contradiction(meant[0][0], meant[1][0], wishes, f"{meant[0][1]} and {meant[1][1]} are two environments")
    name = asked or (meant[0][1] if meant else _around(wishes))
    _check_wanted(name, wishes)
    for key, other in meant:
        if key not in WANTED.get(name, ()) and not (key == "image" and name in OF_IMAGES):
            raise _contradiction("env", key, wishes, f"the environment is {name}, and {key} means {other}")
    _check_of_container(name, wishes)
    return name


def _meant(wishes: Wishes) -> Iterator[tuple[str, str]]:
    """The settings that stand for an environment, each with its name."""
    if wishes.get("venv"):
        yield "venv", "venv"
    if wishes.get("conda"):
        yield "conda", "conda"
    if wishes.get("image"):
        yield "image", "enroot" if wishes.get("image").endswith((".sqsh", ".squashfs")) else "apptainer"
    if wishes.get("container_exec"):
        yield "container_exec", "container"


def _around(wishes: Wishes) -> str:
    """Modules and lines of setup go with every environment, and are one where there is no other."""
    if wishes.get("modules"):
        return "modules"
    return "setup" if wishes.get("setup") else "bare"


def _check_wanted(name: str, wishes: Wishes) -> None:
    wanted = WANTED.get(name, ())
    if wanted and not any(wishes.get(key) for key in wanted):
        flags = " or ".join(f"--{key.replace('_', '-')}" for key in wanted)
        raise ConfigError(
            f"the environment is {name}, but nothing says which", origin=wishes.origin("env"), hint=f"{flags} says it"
        )


def _check_of_container(name: str, wishes: Wishes) -> None:
    useless = [key for key in OF_CONTAINERS if wishes.get(key)]
    if name == "container":
        useless = [key for key in useless if key not in OF_ANY_CONTAINER]
        why, hint = "a container of any kind is told by --container-exec alone", "write it there, as its own flags"
    elif name in CONTAINERS:
        return
    else:
        why, hint = f"the environment is {name}, which is no container", "--image FILE or --container-exec COMMAND"
    if useless:
        raise ConfigError(f"{useless[0]} means nothing here", origin=wishes.origin(useless[0]), why=why, hint=hint)


def _contradiction(first: str, second: str, wishes: Wishes, why: str) -> ConfigError:
    return ConfigError(
        "the environment is not clear",
        origin=f"{wishes.origin(first)}; {wishes.origin(second)}",
        why=why,
        hint="leave one of them out; --env bare goes without any",
    )
