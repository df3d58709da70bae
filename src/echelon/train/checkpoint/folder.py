"""The folder of checkpoints: prepared, locked, visible to all ranks, and fenced against older attempts."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.events import Event, Kind, parse_event
from echelon.placement import REJECTED_CHECKPOINT
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.train.checkpoint import file_format
from echelon.train.checkpoint.consensus import MAX_NAMED_RANKS, Consensus, JsonObject
from echelon.train.checkpoint.retention import remove_leftovers
from echelon.train.store import poll_until

# Whether this process may still commit: not if the run has a newer attempt or generation


@record
class RunContext:
    """The run, attempt and generation of this process. `run` is None if echelon did not start it."""

    run: Path | None = None
    run_id: str = ""
    attempt: int = 0
    generation: int = 0
    rejected_checkpoint: str = ""
    """The name of a checkpoint to load only if no other one is intact."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> RunContext:
        run = environ.get("ECHELON_RUN_DIR")
        if not run:
            return cls()
        return cls(
            run=Path(run),
            run_id=environ.get("ECHELON_RUN_ID", ""),
            attempt=int(environ.get("ECHELON_ATTEMPT", "0")),
            generation=int(environ.get("ECHELON_GENERATION", "0")),
            rejected_checkpoint=environ.get(REJECTED_CHECKPOINT, ""),
        )


def find_newer_start(run_context: RunContext) -> str | None:
    """The newer start that has replaced this process, such as "attempt 2". None if this process is of the newest start.

    Reads the run directory.
    """
    if run_context.run is None:
        return None
    run_dir = RunDir(run_context.run)
    newest = max((attempt.number for attempt in run_dir.attempts()), default=0)
    return newer_start(run_context, newest, _generation_events(run_dir.events))


def newer_start(run_context: RunContext, newest_attempt: int, events: Iterable[Event]) -> str | None:
    """The start in `events` or `newest_attempt` that is newer than this process, such as "generation 1"; or None."""
    if newest_attempt > run_context.attempt:
        return f"attempt {newest_attempt}"
    starts = [
        event.fields.get("generation", 0)
        for event in events
        if event.kind is Kind.GENERATION and event.attempt == run_context.attempt
    ]
    newest = max(starts, default=0)
    return f"generation {newest}" if newest > run_context.generation else None


def _generation_events(path: Path) -> Iterable[Event]:
    """The generation events. Only lines that contain "generation" are parsed: the file of a run of several weeks has
    hundreds of thousands of lines."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return [event for line in lines if '"generation"' in line and (event := parse_event(line)) is not None]
    except OSError:
        return []


# The folder of checkpoints


def checkpoint_folder(asked: str | os.PathLike[str] | None, run_context: RunContext) -> Path:
    """The given folder, the run's own one, or ./checkpoints outside of a run."""
    if asked is not None:
        return Path(asked).absolute()
    return RunDir(run_context.run).checkpoints if run_context.run is not None else Path("checkpoints").absolute()


def is_inside_run(folder: Path, run_context: RunContext) -> bool:
    """Whether the folder is inside the run directory. No other run writes there, while several runs may use any other
    folder."""
    return run_context.run is not None and folder.resolve().is_relative_to(run_context.run.resolve())


def prepare_folder(asked: str | os.PathLike[str] | None, run_context: RunContext, timeout: timedelta) -> dict[str, Any]:
    """Prepares the folder, on rank 0: creates it, locks it unless it is the run's own, removes unfinished saves, and
    creates the probe that the other ranks look for. Raises EnvironmentProblem.

    The token in the result is part of the names of temporary folders. It is different for each start.
    """
    folder, token = checkpoint_folder(asked, run_context), os.urandom(4).hex()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_inside_run(folder, run_context):
            acquire_lock(folder, run=run_context.run_id, patience=min(LOCK_TIMEOUT, timeout))
        remove_leftovers(folder)
        probed = create_probe(folder, token)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write to {folder}", origin="echelon.Checkpoint", why=error.strerror or str(error)
        ) from error
    return {"folder": str(folder), "token": token, "probed": probed}


LOCK_TIMEOUT = timedelta(seconds=30)
"""How long to wait for an earlier job that is about to end."""


def acquire_lock(folder: Path, *, run: str = "", patience: timedelta = LOCK_TIMEOUT) -> int | None:
    """Locks the folder. Returns the open file descriptor that holds the lock until this process ends.

    Returns None if the file system does not support locks. Also returns None if an earlier start of the same `run`
    still holds the lock after `patience`: its node may be lost, so that the lock is never released, and the fence
    prevents it from committing. Raises EnvironmentProblem if another job holds the lock.
    """
    fd = os.open(folder / file_format.LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        locked = any(_try_lock(fd) for _ in poll_until(patience))
    except OSError:
        os.close(fd)
        return None
    if locked:
        _write_lock_holder(fd, f"{_run_prefix(run)}process {os.getpid()} on {socket.gethostname()}\n")
        return fd
    holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
    os.close(fd)
    if run and holder.startswith(_run_prefix(run)):
        return None
    raise EnvironmentProblem(
        f"another job saves to {folder}",
        origin="echelon.Checkpoint",
        why=f"the lock is held by {holder or 'another process'}",
        hint="give each job a folder of its own: Checkpoint('checkpoints/second', ...)",
    )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _write_lock_holder(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # on a full disk the lock still works
        os.ftruncate(fd, os.pwrite(fd, text.encode(), 0))


def _run_prefix(run: str) -> str:
    return f"run {run}, " if run else ""


PROBE_TIMEOUT = timedelta(seconds=30)
"""On a network file system, a new entry may become visible on other hosts only after some seconds."""


def create_probe(folder: Path, token: str) -> bool:
    """Creates the probe, on rank 0. Returns False if the disk is full, which must not prevent training.

    Raises OSError for any other failure.
    """
    try:
        (folder / file_format.probe_folder_name(token)).mkdir(mode=0o700)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def check_shared(folder: Path, token: str, consensus: Consensus, timeout: timedelta) -> None:
    """Checks, on all ranks, that the probe of rank 0 is visible. Raises EnvironmentProblem on all ranks if it is not
    visible on one."""
    seen = wait_for_probe(folder, token, min(PROBE_TIMEOUT, timeout / 2))
    word = {"seen": seen, "host": socket.gethostname()}
    outcome = consensus.agree(
        "look for the folder", word, lambda words: _collect_probe_results(folder, token, words), timeout
    )
    if outcome["blind"]:
        raise _not_shared_error(folder, outcome["blind"], str(outcome["host"]))


def wait_for_probe(folder: Path, token: str, patience: timedelta) -> bool:
    return any(file_format.probe_folder_name(token) in _folder_entries(folder) for _ in poll_until(patience))


def _folder_entries(folder: Path) -> list[str]:
    """The names in the folder. Opening the folder makes NFS ask its server; a stat of one name may use a cache."""
    try:
        return os.listdir(folder)  # noqa: PTH208  only the names are needed
    except OSError:
        return []


def _collect_probe_results(folder: Path, token: str, words: Sequence[JsonObject]) -> JsonObject:
    with contextlib.suppress(OSError):  # the next start removes it
        (folder / file_format.probe_folder_name(token)).rmdir()
    blind = [f"rank {rank} on {word['host']}" for rank, word in enumerate(words) if not word["seen"]]
    return {"blind": blind, "host": words[0]["host"]}


def _not_shared_error(folder: Path, blind: Sequence[str], host: str) -> EnvironmentProblem:
    named = ", ".join(blind[:MAX_NAMED_RANKS])
    more = f" and {len(blind) - MAX_NAMED_RANKS} more" if len(blind) > MAX_NAMED_RANKS else ""
    return EnvironmentProblem(
        f"the ranks do not share {folder}",
        origin="echelon.Checkpoint",
        why=f"a folder that rank 0 on {host} created in it is not visible to {named}{more}",
        hint="give Checkpoint a folder that all hosts see: Checkpoint('/shared/checkpoints', ...)",
    )
