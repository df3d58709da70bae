"""Settings to a Job, strictly: a value of the wrong kind is refused with its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.config.durations import format_duration, parse_duration
from echelon.config.layers import Setting
from echelon.config.options import BY_KEY, Option, Type
from echelon.config.suggest import closest
from echelon.errors import ConfigError
from echelon.job import Job, Policies, Resources, Script, ScriptKind, looks_secret
from echelon.plan import parse_ports

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
OFF = ("off", "none", "never")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the job is fitted to, found out by the caller."""

    cwd: str
    python: str
    gpus: int = 0


class Settings:
    """The merged settings, each decoded when it is asked for."""

    def __init__(self, merged: Mapping[str, Setting]) -> None:
        self._merged = merged

    def origin(self, key: str) -> str:
        return self._merged[key].origin if key in self._merged else "default"

    def get(self, key: str) -> Any:
        if key not in self._merged:
            return None
        return decoded(BY_KEY[key], self._merged[key])

    def count(self, key: str) -> int:
        return int(self.get(key))

    def duration(self, key: str) -> timedelta:
        value = self.get(key)
        return value if isinstance(value, timedelta) else timedelta(0)

    def explained(self) -> list[tuple[str, Any, str]]:
        return [(key, setting.value, setting.origin) for key, setting in sorted(self._merged.items())]


def decoded(option: Option, setting: Setting) -> Any:
    try:
        return _READERS[option.type](option, setting.value)
    except ValueError as error:
        raise ConfigError(
            f"{option.key} is {setting.value!r}",
            origin=setting.origin,
            why=str(error),
            hint=_hint(option, setting),
        ) from error


def _hint(option: Option, setting: Setting) -> str:
    guess = closest(str(setting.value), option.choices) if option.choices else None
    return guess or f"{option.flag}: {option.help}"


def _count(option: Option, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("it must be a whole number")
    if value < option.least:
        raise ValueError(f"it must be at least {option.least}")
    return value


def _duration(option: Option, value: Any) -> timedelta | None:
    if option.can_be_off and str(value).lower() in OFF:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("it must be a duration: 90s, 15m, 2h or 1:30:00")
    duration = parse_duration(str(value))
    if duration < timedelta(seconds=option.least):
        raise ValueError(f"it must be at least {option.least}s")
    return duration


def _text(_: Option, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it must be text, and not empty")
    return value


def _switch(_: Option, value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError("it must be true or false")
    return words[str(value).lower()]


def _choice(option: Option, value: Any) -> str:
    if value not in option.choices:
        raise ValueError(f"it must be one of: {', '.join(option.choices)}")
    return str(value)


def _variables(_: Option, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of variables: [set]")
    for name, text in value.items():
        if not re.fullmatch(VARIABLE, name):
            raise ValueError(f"{name!r} is no name for a variable")
        if not isinstance(text, (str, int, float)) or "\0" in str(text):
            raise ValueError(f"the value of {name} must be text")
    return {name: str(text).lower() if isinstance(text, bool) else str(text) for name, text in value.items()}


_READERS = {
    Type.COUNT: _count,
    Type.DURATION: _duration,
    Type.TEXT: _text,
    Type.SWITCH: _switch,
    Type.CHOICE: _choice,
    Type.VARIABLES: _variables,
}


def job_of(settings: Settings, script: Script, machine: Machine) -> Job:
    """Pure: looks at nothing but its arguments."""
    variables = settings.get("set") or {}
    _check_ports(settings)
    return Job(
        name=_name(settings, script),
        script=script,
        cwd=machine.cwd,
        python=settings.get("python") or machine.python,
        resources=_resources(settings, machine),
        policies=_policies(settings),
        env={name: value for name, value in variables.items() if not looks_secret(name)},
        secret_env=tuple(sorted(filter(looks_secret, variables))),
        scheduler=settings.get("on"),
        launcher=settings.get("launcher"),
        environment=settings.get("env"),
        cold=settings.get("cold"),
        ports=settings.get("ports"),
    )


def secrets_of(settings: Settings) -> dict[str, str]:
    """The values that go into the process environment and nowhere else."""
    variables: dict[str, str] = settings.get("set") or {}
    return {name: value for name, value in variables.items() if looks_secret(name)}


def _name(settings: Settings, script: Script) -> str:
    given = settings.get("name")
    if given is not None and not re.fullmatch(NAME, given):
        raise ConfigError(
            f"{given!r} cannot be the name of a run",
            origin=settings.origin("name"),
            why="it becomes a folder: letters, digits, dot, dash and underscore, at most 64",
        )
    return given or name_from(script)


def name_from(script: Script) -> str:
    stem = script.target.rpartition(".")[2] if script.kind is ScriptKind.MODULE else Path(script.target).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:40] or "run"


def _resources(settings: Settings, machine: Machine) -> Resources:
    nodes, smallest = settings.count("nodes"), settings.get("min_nodes")
    if smallest is not None and smallest > nodes:
        raise ConfigError(
            f"min_nodes is {smallest}, which is more than nodes, {nodes}",
            origin=f"{settings.origin('min_nodes')}; {settings.origin('nodes')}",
            hint=f"--min-nodes {nodes} or fewer",
        )
    gpus = settings.get("gpus_per_node")
    return Resources(
        nodes=nodes,
        min_nodes=smallest,
        spare_nodes=settings.count("spare_nodes"),
        gpus_per_node=machine.gpus,
        procs_per_node=settings.get("procs_per_node") or gpus or machine.gpus or 1,
        time_limit=settings.get("time"),
    )


def _policies(settings: Settings) -> Policies:
    return Policies(
        restarts=settings.count("restarts"),
        requeues=settings.count("requeues"),
        notice=_notice(settings),
        hang_timeout=settings.get("hang_timeout"),
        grace=settings.duration("grace"),
        heartbeat=settings.duration("heartbeat"),
        join_timeout=settings.duration("join_timeout"),
    )


def _notice(settings: Settings) -> timedelta:
    """Inside the time limit: a default is shortened to fit, one that was asked for is refused."""
    notice, limit = settings.duration("notice"), settings.get("time")
    if limit is None or notice < limit:
        return notice
    if settings.origin("notice") == "default":
        return timedelta(seconds=limit.total_seconds() / 4)
    raise ConfigError(
        f"notice is {format_duration(notice)}, but the time limit is {format_duration(limit)}",
        origin=f"{settings.origin('notice')}; {settings.origin('time')}",
        why="the notice would come before the ranks have started",
        hint=f"--notice {format_duration(limit / 4)}",
    )


def _check_ports(settings: Settings) -> None:
    ports = settings.get("ports")
    try:
        parse_ports(ports or "1")
    except ValueError as error:
        raise ConfigError(
            f"ports is {ports!r}", origin=settings.origin("ports"), why="it must be a range like 29500-29599",
            hint="--ports 29500-29599",
        ) from error  # fmt: skip
