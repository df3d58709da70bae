"""`--on ssh`: plain hosts. The supervisor is a detached process on this machine and holds one connection to each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from echelon import hostfile
from echelon.environments.choice import environment_of
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.schedulers import Fit, Found, Wishes
from echelon.schedulers.detached import cancel, pause, query, submit
from echelon.schedulers.script import plain_script

__all__ = ("STARTS_HERE", "cancel", "fit", "pause", "query", "render", "submit", "summary")

STARTS_HERE = True
REMOTE_PYTHON = Found(value="python3", origin="the default on ssh hosts")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The hosts that were named, where, and how many ranks each has room for."""

    slots: Mapping[str, int | None]
    origin: str

    @property
    def fewest(self) -> int | None:
        return min((count for count in self.slots.values() if count is not None), default=None)


def fit(wishes: Wishes, environ: Mapping[str, str]) -> Fit:  # noqa: ARG001  every scheduler is asked the same way
    """Every host that was named, and every slot of it, unless fewer are asked for."""
    listed = listed_hosts(wishes)
    spare = wishes.get("spare_nodes")
    nodes = wishes.asked("nodes") or max(1, len(listed.slots) - spare)
    if nodes + spare > len(listed.slots):
        raise ConfigError(
            f"{nodes + spare} hosts are needed, but {len(listed.slots)} are listed",
            origin=f"{wishes.origin('nodes' if wishes.asked('nodes') else 'spare_nodes')}; {listed.origin}",
            hint=f"-N {max(1, len(listed.slots) - spare)}, or more hosts",
        )
    asked = wishes.asked("gpus_per_node") or wishes.asked("procs_per_node")
    _check_room(listed, asked, wishes)
    found = {"nodes": Found(value=nodes, origin=listed.origin)}
    if environment_of(wishes) in ("bare", "modules", "setup"):
        found["python"] = REMOTE_PYTHON
    if listed.fewest and not asked:
        key = "procs_per_node" if wishes.get("cpu") else "gpus_per_node"
        found[key] = Found(value=listed.fewest, origin=listed.origin)
    gpus = 0 if wishes.get("cpu") else wishes.asked("gpus_per_node") or (0 if asked else listed.fewest) or 0
    return Fit(gpus_per_node=gpus, found=found, hosts=tuple(listed.slots)[: nodes + spare], python_is_there=True)


def listed_hosts(wishes: Wishes) -> Listed:
    choice, file = wishes.get("hosts"), wishes.get("hostfile")
    if choice and file is not None:
        raise ConfigError(
            "both hosts and a hostfile are given", origin=f"{wishes.origin('hosts')}; {wishes.origin('hostfile')}",
            hint="one of --hosts and --hostfile",
        )  # fmt: skip
    if choice:
        return _of_choice(choice.text, choice.groups, wishes.origin("hosts"))
    if file is not None:
        return _of_file(Path(file), wishes.origin("hostfile"))
    groups = f"; there are the groups {', '.join(sorted(choice.groups))}" if choice is not None else ""
    raise ConfigError(
        "no hosts are named", why=f"the scheduler: {wishes.origin('on')}{groups}",
        hint="--hosts gpu1,gpu2 or --hostfile FILE",
    )  # fmt: skip


def _of_choice(text: str, groups: Mapping[str, tuple[str, ...]], origin: str) -> Listed:
    try:
        return Listed(slots=dict.fromkeys(hostfile.chosen(text, groups)), origin=origin)
    except ValueError as error:
        known = f"; the groups are {', '.join(sorted(groups))}" if groups else ""
        raise ConfigError(
            f"hosts is {text!r}", origin=origin, why=f"{error}{known}", hint="--hosts gpu1,gpu2 or --hosts gpu[1-4]"
        ) from error


def _of_file(path: Path, origin: str) -> Listed:
    try:
        slots = hostfile.parse_hostfile(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "--hostfile FILE with one host a line, or --hosts gpu1,gpu2"
        raise ConfigError(f"cannot read the hostfile {path}", origin=origin, why=why, hint=hint) from error
    except ValueError as error:
        hint = "one host a line, as: gpu1 slots=4"
        raise ConfigError(f"{path} is not a hostfile", origin=f"{path}:{error}", hint=hint) from error
    if not slots:
        raise ConfigError(f"no host is listed in {path}", origin=origin, hint="one host a line, as: gpu1 slots=4")
    return Listed(slots=slots, origin=f"hostfile {path}")


def _check_room(listed: Listed, asked: int | None, wishes: Wishes) -> None:
    small = [host for host, slots in listed.slots.items() if slots is not None and slots < (asked or 0)]
    if small:
        key = "gpus_per_node" if wishes.asked("gpus_per_node") else "procs_per_node"
        raise ConfigError(
            f"{asked} ranks on each node asked for, but {small[0]} has {listed.slots[small[0]]} slots",
            origin=f"{wishes.origin(key)}; {listed.origin}",
            hint=f"-g {listed.fewest}",
        )


def summary(job: Job, native_id: str) -> str:  # noqa: ARG001  every scheduler is asked the same way
    shown = ", ".join(job.hosts[:4]) + (", ..." if len(job.hosts) > 4 else "")
    return f"over ssh on {shown}"


def render(job: Job, run_dir: RunDir) -> str:
    """The supervisor runs here, with the Python that runs us; the job's own is that of the hosts."""
    remark = f"{job.resources.nodes} of the hosts {', '.join(job.hosts)}, {job.resources.procs_per_node} ranks on each"
    return plain_script(replace(job, host_python=sys.executable), run_dir, remark)
