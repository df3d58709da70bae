"""The control half of `--on ssh`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from echelon.backends import DerivedValue, Resolution, Settings
from echelon.backends.process import process_script
from echelon.backends.ssh import hostfile
from echelon.environments.detect import choose_environment
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.system.trust import read_trusted

REMOTE_PYTHON = DerivedValue(value="python3", origin="the default on ssh hosts")


@record
class HostList:
    """The listed hosts with their slots, and the source of the list. A slot has room for one rank."""

    slots: Mapping[str, int | None]
    origin: str

    @property
    def fewest_slots(self) -> int | None:
        return min((count for count in self.slots.values() if count is not None), default=None)


def resolve(settings: Settings, environ: Mapping[str, str]) -> Resolution:  # noqa: ARG001  the same signature for all backends
    """All listed hosts and their slots, unless fewer are requested."""
    listed = listed_hosts(settings)
    spare = settings.get("spare_nodes")
    nodes = settings.asked("nodes") or max(1, len(listed.slots) - spare)
    if nodes + spare > len(listed.slots):
        raise ConfigError(
            f"{nodes + spare} hosts requested, but {len(listed.slots)} listed",
            origin=f"{settings.origin('nodes' if settings.asked('nodes') else 'spare_nodes')}; {listed.origin}",
            hint=f"-N {max(1, len(listed.slots) - spare)}, or list more hosts",
        )
    asked = settings.asked("gpus_per_node") or settings.asked("procs_per_node")
    _check_slots(listed, asked, settings)
    found = {"nodes": DerivedValue(value=nodes, origin=listed.origin)}
    if choose_environment(settings) in ("bare", "modules", "setup"):
        found["python"] = REMOTE_PYTHON
    if listed.fewest_slots and not asked:
        key = "procs_per_node" if settings.get("cpu") else "gpus_per_node"
        found[key] = DerivedValue(value=listed.fewest_slots, origin=listed.origin)
    gpus = 0 if settings.get("cpu") else settings.asked("gpus_per_node") or (0 if asked else listed.fewest_slots) or 0
    return Resolution(
        gpus_per_node=gpus, values=found, hosts=tuple(listed.slots)[: nodes + spare], uses_python_of_hosts=True
    )


def listed_hosts(settings: Settings) -> HostList:
    choice, file = settings.get("hosts"), settings.get("hostfile")
    if choice and file is not None:
        raise ConfigError(
            "both --hosts and --hostfile are given",
            origin=f"{settings.origin('hosts')}; {settings.origin('hostfile')}",
            hint="remove one of them",
        )
    if choice:
        return _hosts_from_setting(choice.text, choice.groups, settings.origin("hosts"))
    if file is not None:
        return _hosts_from_file(Path(file), settings.origin("hostfile"))
    groups = f"; groups: {', '.join(sorted(choice.groups))}" if choice is not None else ""
    raise ConfigError(
        "no hosts given",
        why=f"scheduler ssh: {settings.origin('on')}{groups}",
        hint="--hosts gpu1,gpu2 or --hostfile FILE",
    )


def _hosts_from_setting(text: str, groups: Mapping[str, tuple[str, ...]], origin: str) -> HostList:
    try:
        return HostList(slots=dict.fromkeys(hostfile.resolve_hosts(text, groups)), origin=origin)
    except ValueError as error:
        known = f"; groups: {', '.join(sorted(groups))}" if groups else ""
        raise ConfigError(
            f"hosts is {text!r}", origin=origin, why=f"{error}{known}", hint="--hosts gpu1,gpu2 or --hosts gpu[1-4]"
        ) from error


def _hosts_from_file(path: Path, origin: str) -> HostList:
    try:
        slots = hostfile.parse_hostfile(read_trusted(path, [path.parent], origin=origin))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "--hostfile FILE with one host per line, or --hosts gpu1,gpu2"
        raise ConfigError(f"cannot read the hostfile {path}", origin=origin, why=why, hint=hint) from error
    except ValueError as error:
        hint = "write one host per line: gpu1 slots=4"
        raise ConfigError(f"{path} is not a hostfile", origin=f"{path}:{error}", hint=hint) from error
    if not slots:
        raise ConfigError(f"no host in {path}", origin=origin, hint="write one host per line: gpu1 slots=4")
    return HostList(slots=slots, origin=f"hostfile {path}")


def _check_slots(listed: HostList, asked: int | None, settings: Settings) -> None:
    small = [host for host, slots in listed.slots.items() if slots is not None and slots < (asked or 0)]
    if small:
        key = "gpus_per_node" if settings.asked("gpus_per_node") else "procs_per_node"
        raise ConfigError(
            f"{asked} ranks per node requested, but {small[0]} has {listed.slots[small[0]]} slots",
            origin=f"{settings.origin(key)}; {listed.origin}",
            hint=f"-g {listed.fewest_slots}",
        )


def submission_summary(job: Job, native_id: str) -> str:  # noqa: ARG001  the same signature for all backends
    shown = ", ".join(job.hosts[:4]) + (", ..." if len(job.hosts) > 4 else "")
    return f"over ssh on {shown}"


def render(job: Job, run_dir: RunDir) -> str:
    """The supervisor runs on this machine with the current Python. The job's Python is that of the hosts."""
    remark = f"{job.resources.nodes} of the hosts {', '.join(job.hosts)}, {job.resources.procs_per_node} ranks on each"
    return process_script(replace(job, host_python=sys.executable), run_dir, remark)
