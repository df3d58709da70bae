"""Chooses the environment: the value of `--env`, or the one that other settings imply. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from echelon.environments import CONTAINERS
from echelon.errors import ConfigError

REQUIRED_SETTINGS: dict[str, tuple[str, ...]] = {
    "venv": ("venv",),
    "conda": ("conda",),
    "container": ("container_exec",),
    "modules": ("modules",),
    "setup": ("setup",),
    "apptainer": ("image",),
    "singularity": ("image",),
    "enroot": ("image", "container_name"),
    "pyxis": ("image", "container_name"),
}
"""Settings of which each environment needs at least one."""
REQUIRED_VALUE_NAMES = {
    "venv": "a directory",
    "conda": "a name or a directory",
    "container": "a command",
    "modules": "a module",
    "setup": "a line of bash",
}
FLAG_PLACEHOLDERS = {
    "venv": "DIR",
    "conda": "NAME",
    "container_exec": "COMMAND",
    "modules": "NAME",
    "setup": "LINE",
    "image": "FILE",
    "container_name": "NAME",
}
IMAGE_ENVIRONMENTS = CONTAINERS - {"container"}
CONTAINER_SETTINGS = ("mount", "container_workdir", "container_name", "container_writable", "container_root")
CONTAINER_EXEC_SETTINGS = ("container_workdir",)
"""Settings of a container that also work with `--container-exec`."""


class Settings(Protocol):
    def get(self, key: str) -> Any: ...

    def origin(self, key: str) -> str: ...


def choose_environment(settings: Settings) -> str:
    asked: str | None = settings.get("env")
    if asked == "bare":
        return asked  # overrides the environment of a configuration file
    implied = list(_implied_environments(settings))
    if asked is None and len(implied) > 1:
        raise _contradiction_error(
            implied[0][0],
            implied[1][0],
            settings,
            f"{_option_flag(implied[0][0])} and {_option_flag(implied[1][0])} choose different environments",
        )
    name = asked or (implied[0][1] if implied else _default_environment(settings))
    _check_required_settings(name, settings)
    for key, other in implied:
        if key not in REQUIRED_SETTINGS.get(name, ()) and not (key == "image" and name in IMAGE_ENVIRONMENTS):
            raise _contradiction_error("env", key, settings, f"--env is {name}, but {_option_flag(key)} means {other}")
    _check_container_settings(name, settings)
    return name


def _implied_environments(settings: Settings) -> Iterator[tuple[str, str]]:
    """Settings that imply an environment, each with the name of that environment."""
    if settings.get("venv"):
        yield "venv", "venv"
    if settings.get("conda"):
        yield "conda", "conda"
    if settings.get("image"):
        yield "image", "enroot" if settings.get("image").endswith((".sqsh", ".squashfs")) else "apptainer"
    if settings.get("container_exec"):
        yield "container_exec", "container"


def _default_environment(settings: Settings) -> str:
    """The environment if no other setting implies one. Modules and setup lines also work with any other one."""
    if settings.get("modules"):
        return "modules"
    return "setup" if settings.get("setup") else "bare"


def _check_required_settings(name: str, settings: Settings) -> None:
    wanted = REQUIRED_SETTINGS.get(name, ())
    if wanted and not any(settings.get(key) for key in wanted):
        flags = " or ".join(f"{_option_flag(key)} {FLAG_PLACEHOLDERS[key]}" for key in wanted)
        raise ConfigError(
            f"--env {name} needs {REQUIRED_VALUE_NAMES.get(name, 'an image')}",
            origin=settings.origin("env"),
            hint=flags,
        )


def _check_container_settings(name: str, settings: Settings) -> None:
    useless = [key for key in CONTAINER_SETTINGS if settings.get(key)]
    if name == "container":
        useless = [key for key in useless if key not in CONTAINER_EXEC_SETTINGS]
        place, hint = "--container-exec", "add it to that command, as an option of the container runtime"
    elif name in CONTAINERS:
        return
    else:
        place, hint = f"environment {name}, which is not a container", "--image FILE or --container-exec COMMAND"
    if useless:
        what = f"{_option_flag(useless[0])} has no effect with {place}"
        raise ConfigError(what, origin=settings.origin(useless[0]), hint=hint)


def _option_flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _contradiction_error(first: str, second: str, settings: Settings, why: str) -> ConfigError:
    return ConfigError(
        "more than one environment is given",
        origin=f"{settings.origin(first)}; {settings.origin(second)}",
        why=why,
        hint="remove one of them, or --env bare for none",
    )
