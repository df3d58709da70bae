"""This machine and its login side (tier 1): scheduler, request, folders, visibility, and who holds a folder."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from echelon.backends import Backend
from echelon.doctor.model import Facts, Finding, Severity, items, text
from echelon.errors import EchelonError, SchedulerUnreachable
from echelon.job import Job
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.system.machine import find_program
from echelon.train.checkpoint.file_format import LOCK_FILE
from echelon.untrusted import read_end

NEARLY_FULL = 0.95
QUOTA_SECONDS = 5.0


@record
class LoginPlan:
    """What to look at on this machine."""

    job: Job
    runs: Path
    checkpoints: tuple[Path, ...] = ()
    shared_paths: Mapping[str, bool] = field(default_factory=dict)
    """Paths that the nodes need, and whether nodes of this backend probably see them."""


def collect_scheduler(plan: LoginPlan, ours: Backend, environ: Mapping[str, str]) -> dict[str, Any]:
    """Asks the scheduler whether it would accept the job."""
    began = time.monotonic()
    script = ours.render(plan.job, RunDir(plan.runs / "doctor"))
    try:
        answer = ours.check_request(plan.job, script, environ)
    except EchelonError as error:
        parts = {"what": error.what, "why": error.why or "", "fix": error.hint or ""}
        return {"label": ours.label, "refusal": parts, "answers": not isinstance(error, SchedulerUnreachable)}
    return {"label": ours.label, "answer": answer, "seconds": round(time.monotonic() - began, 2)}


def collect_holders(folders: Sequence[Path]) -> dict[str, Any]:
    """Checkpoint folders that another job has locked."""
    return {"held": [{"path": str(folder), "holder": holder} for folder in folders if (holder := lock_holder(folder))]}


def lock_holder(folder: Path) -> str:
    """Who holds the lock of a checkpoint folder; empty if it is free."""
    path = folder / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return read_end(path, 200).decode(errors="replace").strip() or "another process"
    finally:
        os.close(fd)
    return ""


def collect_visible(paths: Mapping[str, bool]) -> dict[str, Any]:
    return {"unseen": [path for path, is_shared in paths.items() if not is_shared]}


def collect_quota(environ: Mapping[str, str]) -> dict[str, Any]:
    """What quota(1) prints. Many file systems have quotas that it does not know."""
    program = find_program("quota", environ)
    if program is None:
        return {}
    done = subprocess.run(
        [program, "-w", "-p"], capture_output=True, text=True, errors="replace", timeout=QUOTA_SECONDS, check=False
    )
    return {"quotas": parse_quota(done.stdout)}


def parse_quota(output: str) -> list[dict[str, Any]]:
    """Used and allowed blocks of each file system, of the form of `quota -w`. Other lines are ignored."""
    found = []
    for line in output.splitlines():
        fields = line.split()
        numbers = [field.rstrip("*") for field in fields[1:4]]
        if len(fields) >= 4 and all(one.isdecimal() for one in numbers):
            used, soft, hard = map(int, numbers)
            if limit := hard or soft:
                found.append({"path": fields[0], "share": round(used / limit, 3)})
    return found


def judge_login(facts: Mapping[str, Facts], host: str) -> list[Finding]:
    """Findings from the results of the collectors above, by name. Pure."""
    return [
        *_judge_scheduler(facts.get("scheduler", {}), host),
        *_judge_holders(facts.get("holders", {}), host),
        *_judge_visible(facts.get("visible", {}), host),
        *_judge_quota(facts.get("quota", {}), host),
    ]


def _login(severity: Severity, host: str, check: str, what: str, why: str, fix: str) -> Finding:
    return Finding(severity=severity, check=check, node=host, what=what, why=why, fix=fix)


def _judge_scheduler(facts: Facts, host: str) -> Iterator[Finding]:
    refusal = facts.get("refusal")
    if isinstance(refusal, dict):
        what, why, fix = (str(refusal.get(key) or "") for key in ("what", "why", "fix"))
        yield _login(Severity.ERROR, host, "scheduler", what, why, fix)


def _judge_holders(facts: Facts, host: str) -> Iterator[Finding]:
    for one in items(facts, "held"):
        if isinstance(one, dict):
            what = f"another run saves to {one.get('path')}"
            fix = "wait for it, cancel it, or give each run a folder of its own"
            yield _login(Severity.ERROR, host, "holders", what, f"its lock is held by {one.get('holder')}", fix)


def _judge_visible(facts: Facts, host: str) -> Iterator[Finding]:
    for path in items(facts, "unseen"):
        why = "the name is usual for a local disk, which the nodes do not see"
        yield _login(
            Severity.WARNING, host, "visible", f"{path} may not exist on the nodes", why, "move it to a shared folder"
        )


def _judge_quota(facts: Facts, host: str) -> Iterator[Finding]:
    for one in items(facts, "quotas"):
        share = one.get("share") if isinstance(one, dict) else None
        if isinstance(share, float) and share > NEARLY_FULL:
            severity = Severity.ERROR if share >= 1 else Severity.WARNING
            what = f"{share:.0%} of the quota of {text(one, 'path')} is used"
            yield _login(
                severity, host, "quota", what, "writes fail when it is full", "quota -s shows it; remove files"
            )
