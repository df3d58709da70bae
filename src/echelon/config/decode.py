"""Settings to a Job, strictly: a value of the wrong kind is refused with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.arrays import parse_indices
from echelon.config.durations import format_duration
from echelon.config.enclosing import enclosure_of, python_of
from echelon.config.layers import DEFAULT, Setting
from echelon.config.options import BY_KEY
from echelon.config.readers import decoded
from echelon.environments import CONTAINERS
from echelon.errors import ConfigError
from echelon.job import Booking, Job, Launching, Policies, Resources, Script, ScriptKind, looks_secret
from echelon.plan import parse_ports

FOR_AN_IMAGE = timedelta(minutes=20)
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the job is fitted to, found out by the caller."""

    cwd: str
    python: str
    gpus: int = 0
    hosts: tuple[str, ...] = ()
    host_python: str | None = None
    """The one that runs us, for a supervisor that stays outside of the environment."""


class Settings:
    """The merged settings, each decoded when it is asked for."""

    def __init__(self, merged: Mapping[str, Setting]) -> None:
        self._merged = merged

    def origin(self, key: str) -> str:
        return self._merged[key].origin if key in self._merged else DEFAULT

    def get(self, key: str) -> Any:
        if key not in self._merged:
            return None
        return decoded(BY_KEY[key], self._merged[key])

    def asked(self, key: str) -> Any:
        """None where nobody but the default says anything."""
        return None if self.origin(key) == DEFAULT else self.get(key)

    def filled(self, found: Iterable[Setting]) -> Settings:
        """With these for what nobody has given."""
        new = {setting.key: setting for setting in found if self.origin(setting.key) == DEFAULT}
        return Settings({**self._merged, **new})

    def is_of_use(self, key: str) -> bool:
        """It was given, and the scheduler and the launcher can do something with it."""
        only, launchers = BY_KEY[key].only, BY_KEY[key].launchers
        return (
            key in self._merged
            and (not only or self.get("on") in only)
            and (not launchers or self.get("launcher") in launchers)
        )

    def count(self, key: str) -> int:
        return int(self.get(key))

    def duration(self, key: str) -> timedelta:
        value = self.get(key)
        return value if isinstance(value, timedelta) else timedelta(0)

    def explained(self) -> list[tuple[str, Any, str]]:
        return [(key, setting.value, setting.origin) for key, setting in sorted(self._merged.items())]


def job_of(settings: Settings, script: Script, machine: Machine) -> Job:
    """Pure: looks at nothing but its arguments."""
    variables = settings.get("set") or {}
    _check_ports(settings)
    environment, enclosure = enclosure_of(settings, machine.cwd)
    job = Job(
        name=_name(settings, script),
        script=script,
        cwd=machine.cwd,
        python=python_of(environment, enclosure, settings, machine.python),
        resources=_resources(settings, machine),
        policies=_policies(settings, environment),
        env={name: value for name, value in variables.items() if not looks_secret(name)},
        secret_env=tuple(sorted(filter(looks_secret, variables))),
        scheduler=settings.get("on") or "local",
        booking=_booking(settings),
        launcher=settings.get("launcher"),
        launching=_launching(settings),
        environment=environment,
        enclosure=enclosure,
        cold=settings.get("cold"),
        ports=settings.get("ports"),
        interface=settings.get("interface") if settings.is_of_use("interface") else None,
        hosts=machine.hosts,
        snapshot=settings.get("snapshot"),
        snapshot_max=settings.get("snapshot_max"),
    )
    return replace(job, host_python=machine.host_python) if job.is_enclosed else job


def _launching(settings: Settings) -> Launching:
    given = {"rdzv": "rdzv", "options": "launcher_option"}
    return Launching(**{name: settings.get(key) for name, key in given.items() if settings.is_of_use(key)})


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
        cpus=settings.get("cpus") if settings.is_of_use("cpus") else None,
        memory=settings.get("mem") if settings.is_of_use("mem") else None,
        time_limit=settings.get("time"),
    )


def _booking(settings: Settings) -> Booking:
    """What the scheduler can use; the rest may be meant for another one."""
    _check_array(settings)
    keys = [field.name for field in fields(Booking) if field.name in BY_KEY]
    given = {key: settings.get(key) for key in keys if settings.is_of_use(key)}
    return Booking(**given, native=_native(settings))


def _native(settings: Settings) -> dict[str, str]:
    """The options of the chosen scheduler's own."""
    key = settings.get("on")
    given: dict[str, str] = settings.get(key) or {} if key in ("slurm", "pbs") else {}
    return given


def _check_array(settings: Settings) -> None:
    array = settings.get("array")
    try:
        parse_indices(array or "0")
    except ValueError as error:
        raise ConfigError(
            f"array is {array!r}", origin=settings.origin("array"), why=str(error), hint="--array 0-9, or 0-99%4"
        ) from error


def _policies(settings: Settings, environment: str) -> Policies:
    return Policies(
        restarts=settings.count("restarts"),
        requeues=settings.count("requeues"),
        notice=_notice(settings),
        hang_timeout=settings.get("hang_timeout"),
        grace=settings.duration("grace"),
        heartbeat=settings.duration("heartbeat"),
        join_timeout=_join_timeout(settings, environment),
    )


def _join_timeout(settings: Settings, environment: str) -> timedelta:
    """Making a container of a large image takes minutes, of which nobody should have to think."""
    asked = settings.asked("join_timeout")
    return FOR_AN_IMAGE if asked is None and environment in CONTAINERS else settings.duration("join_timeout")


def _notice(settings: Settings) -> timedelta:
    """Inside the time limit: a default is shortened to fit, one that was asked for is refused."""
    notice, limit = settings.duration("notice"), settings.get("time")
    if limit is None or notice < limit:
        return notice
    if settings.asked("notice") is None:
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
