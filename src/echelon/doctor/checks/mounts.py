"""Mounts whose file server does not answer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.isolate import start_task, wait_for_tasks
from echelon.doctor.model import Check, Facts, Finding, Plan, error, items, warning
from echelon.system.cgroups import read_text

NAME = "mounts"
MOUNT_SECONDS = 3.0
MOST_MOUNTS = 64
REMOTE = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "fuse", "9p", "wekafs", "afs", "pvfs", "orangefs")
LOCAL_FUSE = ("fuse.lxcfs", "fuse.snapfuse", "fuse.portal", "fusectl", "fuse.gvfsd-fuse")


def remote_mounts(mountinfo: str) -> list[tuple[str, str]]:
    """Mount point and type of each mount of a file server. Pure."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) >= 5 and kinds and kinds[0].startswith(REMOTE) and kinds[0] not in LOCAL_FUSE:
            found.append((re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4]), kinds[0]))
    return found[:MOST_MOUNTS]


def collect(plan: Plan) -> dict[str, Any]:  # noqa: ARG001  the same signature for all collectors
    mounts = remote_mounts(read_text(Path("/proc/self/mountinfo")))
    tasks = [start_task(point, MOUNT_SECONDS, lambda point=point: _use(point)) for point, _ in mounts]  # type: ignore[misc]
    done = {task.name: task.result for task in wait_for_tasks(tasks)}
    return {
        "mounts": [
            {"path": point, "type": kind, "hung": result.timed_out, "problem": result.problem}
            for point, kind in mounts
            if (result := done.get(point)) is not None
        ]
    }


def _use(point: str) -> dict[str, Any]:
    os.statvfs(point)
    return {"entry": next(os.scandir(point), None) is not None}


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:
    return [
        finding
        for mount in items(facts, "mounts")
        if isinstance(mount, dict)
        for finding in _judge_mount(node, mount, plan)
    ]


def _judge_mount(node: str, mount: Facts, plan: Plan) -> Iterator[Finding]:
    path, problem = str(mount.get("path")), str(mount.get("problem") or "")
    if not problem or "PermissionError" in problem:
        return
    is_used = any(Path(folder).is_relative_to(path) for folder in plan.folders)
    what = f"{path} hangs" if mount.get("hung") else f"{path} cannot be read"
    why = f"{mount.get('type')} mount: {problem}"
    fix = "exclude the node, and report the mount"
    yield (error if is_used or mount.get("hung") else warning)(NAME, node, what, why, fix)


def hung(node: str) -> Finding:
    return error(NAME, node, "the list of mounts cannot be read", "", "exclude the node, and report it")


CHECK = Check(name=NAME, seconds=MOUNT_SECONDS + 3, collect=collect, judge=judge, hung=hung)
