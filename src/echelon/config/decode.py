"""Converts settings to a Job. A value of the wrong type raises ConfigError with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.backends import DEFAULT as DEFAULT_BACKEND
from echelon.backends import Backend, backend
from echelon.backends.batch import parse_indices
from echelon.config.environment import choose_python, environment_spec
from echelon.config.options import BY_KEY
from echelon.config.parse import decode_setting, format_duration
from echelon.config.sources import DEFAULT, Setting
from echelon.environments import CONTAINERS
from echelon.errors import ConfigError
from echelon.job import Job, LauncherOptions, Policies, Resources, SchedulerOptions, Script, ScriptKind, looks_secret
from echelon.placement import parse_ports
from echelon.record import record
from echelon.text import parse_size

IMAGE_JOIN_TIMEOUT = timedelta(minutes=20)
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


@record
class Machine:
    """The facts about the machine that a job depends on, detected by the caller."""

    cwd: str
    python: str
    gpus: int = 0
    hosts: tuple[str, ...] = ()
    host_python: str | None = None
    """The Python of this process, for a supervisor that runs outside the environment."""


class Settings:
    """The merged settings. Each is decoded when it is read; a wrong value raises ConfigError."""

    def __init__(self, merged: Mapping[str, Setting]) -> None:
        self._merged = merged

    def origin(self, key: str) -> str:
        return self._merged[key].origin if key in self._merged else DEFAULT

    def get(self, key: str) -> Any:
        if key not in self._merged:
            return None
        return decode_setting(BY_KEY[key], self._merged[key])

    def asked(self, key: str) -> Any:
        """The value, or None if the user has not set it."""
        return None if self.origin(key) == DEFAULT else self.get(key)

    def with_values(self, found: Iterable[Setting]) -> Settings:
        """A copy with the values of `found` for keys that the user has not set."""
        new = {setting.key: setting for setting in found if self.origin(setting.key) == DEFAULT}
        return Settings({**self._merged, **new})

    @property
    def backend(self) -> Backend:
        return backend(self.get("on") or DEFAULT_BACKEND)

    def is_used(self, key: str) -> bool:
        """Whether it has a value and both the backend and the launcher use it."""
        launchers = BY_KEY[key].launchers
        return (
            key in self._merged
            and (not BY_KEY[key].for_some or self.backend.supports_setting(key))
            and (not launchers or self.get("launcher") in launchers)
        )

    def count(self, key: str) -> int:
        return int(self.get(key))

    def duration(self, key: str) -> timedelta:
        value = self.get(key)
        return value if isinstance(value, timedelta) else timedelta(0)

    def explain(self) -> list[tuple[str, Any, str]]:
        return [(key, setting.value, setting.origin) for key, setting in sorted(self._merged.items())]


def build_job(settings: Settings, script: Script, machine: Machine) -> Job:
    """Pure; raises ConfigError."""
    variables = settings.get("set") or {}
    _check_ports(settings)
    environment, enclosure = environment_spec(settings, machine.cwd)
    job = Job(
        name=_run_name(settings, script),
        script=script,
        cwd=machine.cwd,
        python=choose_python(environment, enclosure, settings, machine.python),
        resources=_decode_resources(settings, machine),
        policies=_decode_policies(settings, environment),
        env={name: value for name, value in variables.items() if not looks_secret(name)},
        secret_env=tuple(sorted(filter(looks_secret, variables))),
        scheduler=settings.backend.name,
        booking=_scheduler_options(settings),
        launcher=settings.get("launcher"),
        launching=_launcher_options(settings),
        environment=environment,
        enclosure=enclosure,
        cold=settings.get("cold"),
        ports=settings.get("ports"),
        interface=settings.get("interface") if settings.is_used("interface") else None,
        hosts=machine.hosts,
        snapshot=settings.get("snapshot"),
        snapshot_max=settings.get("snapshot_max"),
    )
    return replace(job, host_python=machine.host_python) if job.is_enclosed else job


def _launcher_options(settings: Settings) -> LauncherOptions:
    given = {"rdzv": "rdzv", "options": "launcher_option"}
    return LauncherOptions(**{name: settings.get(key) for name, key in given.items() if settings.is_used(key)})


def secret_values(settings: Settings) -> dict[str, str]:
    """The values of secret variables. They belong in the process environ only and are never stored."""
    variables: dict[str, str] = settings.get("set") or {}
    return {name: value for name, value in variables.items() if looks_secret(name)}


def _run_name(settings: Settings, script: Script) -> str:
    given = settings.get("name")
    if given is not None and not re.fullmatch(NAME, given):
        raise ConfigError(
            f"invalid run name {given!r}",
            origin=settings.origin("name"),
            why="only letters, digits, dot, dash and underscore, at most 64, beginning with a letter or digit",
            hint="--name gpt-small",
        )
    return given or default_run_name(script)


def default_run_name(script: Script) -> str:
    stem = script.target.rpartition(".")[2] if script.kind is ScriptKind.MODULE else Path(script.target).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:40] or "run"


def _decode_resources(settings: Settings, machine: Machine) -> Resources:
    nodes, smallest = settings.count("nodes"), settings.get("min_nodes")
    if smallest is not None and smallest > nodes:
        raise ConfigError(
            f"--min-nodes {smallest} is more than --nodes {nodes}",
            origin=f"{settings.origin('min_nodes')}; {settings.origin('nodes')}",
            hint=f"--min-nodes {nodes} or less",
        )
    gpus = settings.get("gpus_per_node")
    return Resources(
        nodes=nodes,
        min_nodes=smallest,
        spare_nodes=settings.count("spare_nodes"),
        gpus_per_node=machine.gpus,
        procs_per_node=settings.get("procs_per_node") or gpus or machine.gpus or 1,
        cpus=settings.get("cpus") if settings.is_used("cpus") else None,
        memory=settings.get("mem") if settings.is_used("mem") else None,
        time_limit=settings.get("time"),
    )


def _scheduler_options(settings: Settings) -> SchedulerOptions:
    """The options that the scheduler uses. Others are left out: they may be meant for another scheduler."""
    _check_array(settings)
    keys = [field.name for field in fields(SchedulerOptions) if field.name in BY_KEY]
    given = {key: settings.get(key) for key in keys if settings.is_used(key)}
    return SchedulerOptions(**given, native=_native_options(settings))


def _native_options(settings: Settings) -> dict[str, str]:
    """The options that the chosen backend passes to its scheduler unchanged."""
    given: dict[str, str] = settings.get(settings.backend.name) or {} if settings.backend.native_option else {}
    return given


def _check_array(settings: Settings) -> None:
    array = settings.get("array")
    try:
        parse_indices(array or "0")
    except ValueError as error:
        raise ConfigError(
            f"array is {array!r}", origin=settings.origin("array"), why=str(error), hint="--array 0-9, or 0-99%4"
        ) from error


def _decode_policies(settings: Settings, environment: str) -> Policies:
    return Policies(
        restarts=settings.count("restarts"),
        requeues=settings.count("requeues"),
        notice=_decode_notice(settings),
        hang_timeout=settings.get("hang_timeout"),
        grace=settings.duration("grace"),
        heartbeat=settings.duration("heartbeat"),
        join_timeout=_join_timeout(settings, environment),
        preflight=settings.get("preflight"),
        log_max=parse_size(settings.get("log_max")),
    )


def _join_timeout(settings: Settings, environment: str) -> timedelta:
    """The default is longer for containers, because creating one from a large image takes minutes."""
    asked = settings.asked("join_timeout")
    return IMAGE_JOIN_TIMEOUT if asked is None and environment in CONTAINERS else settings.duration("join_timeout")


def _decode_notice(settings: Settings) -> timedelta:
    """The notice must be shorter than the time limit. A longer default is shortened. A longer value from the user
    raises ConfigError."""
    notice, limit = settings.duration("notice"), settings.get("time")
    if limit is None or notice < limit:
        return notice
    if settings.asked("notice") is None:
        return timedelta(seconds=limit.total_seconds() / 4)
    raise ConfigError(
        f"notice is {format_duration(notice)}, but the time limit is {format_duration(limit)}",
        origin=f"{settings.origin('notice')}; {settings.origin('time')}",
        why="the notice would come before the ranks start",
        hint=f"--notice {format_duration(limit / 4)}",
    )


def _check_ports(settings: Settings) -> None:
    ports = settings.get("ports")
    try:
        parse_ports(ports or "1")
    except ValueError as error:
        raise ConfigError(
            f"ports is {ports!r}",
            origin=settings.origin("ports"),
            why="it must be a range like 29500-29599",
            hint="--ports 29500-29599",
        ) from error
