"""Folders that ranks write to: space, inodes, latency, and what checkpoints need of the file system."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.isolate import start_task, wait_for_tasks
from echelon.doctor.model import Check, Facts, Finding, Plan, error, items, number, text, warning
from echelon.text import format_size

NAME = "storage"
FOLDER_SECONDS = 6.0
LEAST_BYTES = 256 << 20
LITTLE_BYTES = 2 << 30
LEAST_INODES = 1000
LITTLE_INODES = 10_000
SLOW_SECONDS = 0.5
WRITES = 3
BLOCK = bytes(4096)
PREFIX = ".echelon-doctor-"
ABANDONED_SECONDS = 900.0
"""A check takes seconds: what is older belongs to a doctor job that was killed."""


def folders_of(plan: Plan) -> list[tuple[str, str]]:
    """Each folder with its use. The temporary folder is the node's own."""
    return [*((folder, "data") for folder in plan.folders), (tempfile.gettempdir(), "temporary")]


def collect(plan: Plan) -> dict[str, Any]:
    """Each folder in a process of its own: one on a dead file server must not hide the others."""
    tasks = [
        start_task(folder, FOLDER_SECONDS, lambda folder=folder: look_at(Path(folder)))  # type: ignore[misc]
        for folder, _ in folders_of(plan)
    ]
    paths = start_task("", FOLDER_SECONDS, lambda: {"missing": missing_paths(plan.paths)})
    done = {task.name: task.result for task in wait_for_tasks([*tasks, paths])}
    found = []
    for folder, use in folders_of(plan):
        result = done[folder]
        if result is not None:
            problem = {"problem": result.problem, "hung": result.timed_out} if result.problem else {}
            found.append({"path": folder, "use": use, **result.facts, **problem})
    missing = done[""].facts.get("missing", []) if done[""] is not None else []
    return {"folders": found, "missing_paths": missing}


def missing_paths(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not os.path.exists(path)]  # noqa: PTH110  Path.exists raises PermissionError


def look_at(folder: Path) -> dict[str, Any]:
    """Facts of one folder. Writes and removes small files in it."""
    try:
        facts = os.statvfs(folder)
    except OSError as problem:
        return {"missing": problem.strerror}
    found: dict[str, Any] = {
        "free": facts.f_bavail * facts.f_frsize,
        "inodes": facts.f_files,
        "free_inodes": facts.f_favail,
        "no_exec": bool(facts.f_flag & os.ST_NOEXEC),
        "device": folder.stat().st_dev,
    }
    return {**found, **try_writing(folder)}


def try_writing(folder: Path) -> dict[str, Any]:
    """Latency of small synced writes, and which of fsync, rename and locks fail."""
    remove_abandoned(folder, time.time())
    try:
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder) as own:
            seconds = [_write_synced(Path(own) / "probe") for _ in range(WRITES)]
            return {"write_seconds": statistics.median(seconds), **try_commit(Path(own))}
    except OSError as problem:
        return {"write_problem": problem.strerror, "write_errno": problem.errno}


def remove_abandoned(folder: Path, now: float) -> None:
    """Removes files of this user that a killed doctor job left in the folder."""
    for path in folder.glob(f"{PREFIX}*"):
        try:
            facts = path.lstat()
            if facts.st_uid != os.geteuid() or now - facts.st_mtime < ABANDONED_SECONDS:
                continue
            shutil.rmtree(path) if stat.S_ISDIR(facts.st_mode) else path.unlink()
        except OSError:
            continue  # another doctor removes it at the same moment


def _write_synced(path: Path) -> float:
    began = time.monotonic()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, BLOCK)
        os.fsync(fd)
    finally:
        os.close(fd)
    return time.monotonic() - began


def try_commit(folder: Path) -> dict[str, Any]:
    """What the commit of a checkpoint needs: fsync of a folder, rename of a folder, and locks."""
    problems = {}
    steps: dict[str, Callable[[], None]] = {
        "rename": lambda: _rename_folder(folder),
        "fsync of a folder": lambda: _sync_folder(folder),
        "lock": lambda: _lock(folder / "probe"),
    }
    for name, step in steps.items():
        try:
            step()
        except OSError as problem:
            problems[name] = problem.strerror
    return {"commit_problems": problems}


def _rename_folder(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part").rename(folder / "whole")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: Path) -> None:
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:  # noqa: ARG001
    fix = "copy it to a folder that all nodes see"
    why = "the nodes that have it run without this one"
    return [
        *(error(NAME, node, f"no {path} on this node", why, fix) for path in items(facts, "missing_paths")),
        *(
            finding
            for folder in items(facts, "folders")
            if isinstance(folder, dict)
            for finding in judge_folder(node, folder)
        ),
    ]


def judge_folder(node: str, folder: Facts) -> Iterator[Finding]:
    path, other = text(folder, "path"), _other_folder(folder)
    if folder.get("hung"):
        why = f"no answer within {FOLDER_SECONDS:g} s: its file server may be down"
        yield error(NAME, node, f"{path} hangs", why, other)
    elif folder.get("missing"):
        fix = "create it on the node, or use a folder that all nodes see"
        yield error(NAME, node, f"no folder {path}", str(folder["missing"]), fix)
    elif folder.get("write_problem"):
        is_full = folder.get("write_errno") in (errno.ENOSPC, errno.EDQUOT)
        what = f"{path} is full" if is_full else f"cannot write to {path}"
        yield error(NAME, node, what, str(folder["write_problem"]), "free some space in it" if is_full else other)
    elif folder.get("problem"):
        yield error(NAME, node, f"cannot check {path}", str(folder["problem"]), other)
    else:
        yield from _judge_space(node, folder)
        yield from _judge_quality(node, folder)


def _other_folder(folder: Facts) -> str:
    return (
        "set TMPDIR to another folder" if folder.get("use") == "temporary" else "use another folder: ECHELON_RUNS=DIR"
    )


def _judge_space(node: str, folder: Facts) -> Iterator[Finding]:
    path, free, inodes = text(folder, "path"), number(folder, "free"), number(folder, "free_inodes")
    if free is not None and free < LITTLE_BYTES:
        make = error if free < LEAST_BYTES else warning
        why = "a checkpoint or a log that does not fit ends the run"
        yield make(NAME, node, f"{path} has {format_size(int(free))} free", why, "free some space in it")
    if inodes is not None and number(folder, "inodes") and inodes < LITTLE_INODES:
        make = error if inodes < LEAST_INODES else warning
        why = "without free inodes no file can be created, even if df shows free space; df -i shows the inodes"
        yield make(NAME, node, f"{path} has {inodes:.0f} inodes left", why, "remove small files")


def _judge_quality(node: str, folder: Facts) -> Iterator[Finding]:
    path, seconds = text(folder, "path"), number(folder, "write_seconds")
    if seconds is not None and seconds > SLOW_SECONDS:
        why = "one synced write of 4 KiB; each checkpoint needs several"
        yield warning(NAME, node, f"{path} takes {seconds:.1f} s per write", why, _other_folder(folder))
    problems = folder.get("commit_problems")
    for name, problem in (problems if isinstance(problems, dict) else {}).items():
        why = f"{problem}; checkpoints need it to survive a crash"
        yield error(NAME, node, f"{path}: {name} fails", why, "keep checkpoints on another file system")
    if folder.get("no_exec") and folder.get("use") == "temporary":
        why = "torch.compile, Triton and C++ extensions load libraries that they build there"
        yield warning(NAME, node, f"{path} is mounted noexec", why, "--set TMPDIR=DIR, or TORCHINDUCTOR_CACHE_DIR=DIR")


def hung(node: str) -> Finding:
    return error(NAME, node, "the folders of the run hang", "no answer", "check the file servers")


CHECK = Check(name=NAME, seconds=FOLDER_SECONDS + 2, collect=collect, judge=judge, hung=hung)
