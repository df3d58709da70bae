"""Starts, resumes and cancels runs: writes the run directory and submits the job script."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon import lease
from echelon.backends import backend
from echelon.backends.batch import array_run, array_run_by_variable, parse_indices
from echelon.config.environment import check_environment
from echelon.config.preflight import check_target
from echelon.environments.node_script import node_script
from echelon.errors import ConfigError, EchelonError, SchedulerError
from echelon.events import Kind, append_event
from echelon.job import Job
from echelon.observe.find import add_to_index
from echelon.observe.status import status_of
from echelon.placement import without_outer_run
from echelon.run_dir import RunDir, new_run_id, write_error
from echelon.submission import git
from echelon.submission.bundle import node_side
from echelon.submission.snapshot import link_snapshot, project_root, take_snapshot
from echelon.system.project import link_or_copy
from echelon.system.trust import check_runs_folder
from echelon.version import __version__

NO_ID = b" " * 127 + b"\n"


def start(
    job: Job,
    origins: Mapping[str, str],
    secrets: Mapping[str, str],
    runs: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[RunDir]:
    """Submits a new run, or one per index of an array. After an error before the submission, removes the run
    directories."""
    if job.snapshot:
        job = replace(job, project=str(project_root(Path(job.cwd))))
    base = runs / new_run_id(job.name)
    here = backend(job.scheduler).runs_script_here
    warnings = [
        check_runs_folder(runs),
        *check_environment(job, origins, base, here=here),
        check_target(job, os.environ, here=here),
    ]
    for warning in filter(None, warnings):
        say(f"warning: {warning}")
    members = _runs_with_jobs(job, base)
    run_dirs = [run_dir for run_dir, _ in members]
    created: list[RunDir] = []
    try:
        for remark in _create_run_dirs(members, origins, created):
            say(remark)
        _submit(job, _script_home(job, base), run_dirs, secrets)
    except BaseException:
        if not any(run_dir.read_native_id() for run_dir in run_dirs):
            _remove_run_dirs(created)
        else:
            say(f"{base.name} was submitted before this error: echelon cancel {base.name} ends it")
        raise
    for run_dir in run_dirs:
        add_to_index(run_dir)
    return run_dirs


def _runs_with_jobs(job: Job, base: Path) -> list[tuple[RunDir, Job]]:
    """Each run with its job. The job of an array element has only its own index, so that it can be resumed alone."""
    if job.booking.array is None:
        return [(RunDir(base), job)]
    indices = parse_indices(job.booking.array)
    return [(array_run(base, one), replace(job, booking=replace(job.booking, array=str(one)))) for one in indices]


def _script_home(job: Job, base: Path) -> RunDir:
    return (
        RunDir(base)
        if job.booking.array is None
        else array_run_by_variable(base, backend(job.scheduler).array_index_variable)
    )


def _create_run_dirs(
    members: Sequence[tuple[RunDir, Job]], origins: Mapping[str, str], created: list[RunDir]
) -> Sequence[str]:
    """Creates the run directories and appends each to `created`. Returns remarks about the snapshot."""
    facts = _describe_submission(origins)
    remarks: Sequence[str] = ()
    first = members[0][0]
    for run_dir, job in members:
        run_dir.create()
        created.append(run_dir)
        if run_dir is first:
            run_dir.write(run_dir.node_side, node_side())
            if job.snapshot:
                taken = take_snapshot(job, run_dir, run_dir.path.parent)
                facts, remarks = {**facts, "snapshot": taken.facts}, taken.remarks
        else:
            _link_shared_files(first, run_dir)
        run_dir.write_description(job, {"run_id": run_dir.run_id, **facts})
    return remarks


def _link_shared_files(first: RunDir, run_dir: RunDir) -> None:
    """Links the files that all runs of an array share, so that they are stored once."""
    link_or_copy(first.node_side, run_dir.node_side)
    if first.code.exists():
        link_snapshot(first.code, run_dir.code)
    if first.code_diff.exists():
        link_or_copy(first.code_diff, run_dir.code_diff)


def resume(run_dir: RunDir, environ: Mapping[str, str], say: Callable[[str], None] = lambda _: None) -> int:
    """Submits the next attempt of a run that has ended, and returns its number.

    Secrets come from the current process environ. If several processes call this at once, one submits and the others
    raise ConfigError.
    """
    warning = check_runs_folder(run_dir.path.parent)
    if warning is not None:
        say(f"warning: {warning}")
    try:
        lock = lease.acquire(run_dir.resuming)
    except lease.LeaseHeld as holder:
        raise ConfigError(
            f"{run_dir.run_id} is being resumed by another process",
            origin=str(run_dir.resuming),
            why=f"the process is {holder}",
            hint=f"echelon logs -f {run_dir.run_id}",
        ) from holder
    try:
        return _submit_next_attempt(run_dir, environ)
    finally:
        os.close(lock)


def _submit_next_attempt(run_dir: RunDir, environ: Mapping[str, str]) -> int:
    state = status_of(run_dir).state
    if not state.ended:
        raise ConfigError(
            f"{run_dir.run_id} is still {state.value}",
            why="a run can have only one attempt at a time",
            hint=f"echelon logs -f {run_dir.run_id} to follow it, or echelon cancel {run_dir.run_id} first",
        )
    job, attempt = run_dir.read_job(), run_dir.next_attempt()
    missing = [name for name in job.secret_env if name not in environ]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not set",
            origin=str(run_dir.description),
            why="the run was started with it, and values of secrets are not stored",
            hint=f"export {missing[0]}=..., then echelon resume {run_dir.run_id}",
        )
    _submit(job, run_dir, [run_dir], {})
    return attempt


def cancel(run_dir: RunDir) -> bool:
    """Asks the backend to end the run. Returns false if nothing was left to end.

    Writes the cancel mark first, so that the supervisor reports the end as cancelled by the user. Removes it if the
    scheduler refuses, so that the next cancel counts as the first one. A second cancel forces the end.
    """
    again = run_dir.cancel_mark.exists()
    if os.path.lexists(run_dir.path):  # a follower may cancel a run whose directory has disappeared
        run_dir.write(run_dir.cancel_mark, f"{time.time():.3f}\n".encode())
    try:
        return backend(run_dir.read_job().scheduler).cancel(run_dir, force=again)
    except EchelonError as error:
        if not again and not (isinstance(error, SchedulerError) and error.undecided):
            run_dir.cancel_mark.unlink(missing_ok=True)
        raise


def _submit(job: Job, home: RunDir, run_dirs: Sequence[RunDir], secrets: Mapping[str, str]) -> None:
    """Submits one script for all `run_dirs` and stores their ids. `home` is the run directory in the script."""
    ours = backend(job.scheduler)
    script = ours.render(job, home).encode(errors="surrogateescape")
    for run_dir in run_dirs:
        _prepare_attempt(job, run_dir, script)
    native_id = ours.submit(run_dirs[0], {**without_outer_run(os.environ), **secrets}, run_dirs[1:])
    for run_dir in run_dirs:
        array = run_dir.read_job().booking.array
        own_id = native_id if array is None else ours.element_id(native_id, int(array))
        with run_dir.native_id.open("r+b") as file:
            file.write(own_id.encode())


def _prepare_attempt(job: Job, run_dir: RunDir, script: bytes) -> None:
    number = run_dir.claim_attempt()
    run_dir.cancel_mark.unlink(missing_ok=True)
    run_dir.write(run_dir.job_script, script, mode=0o700)
    if job.is_enclosed:
        run_dir.write(run_dir.node_script, node_script(job).encode(errors="surrogateescape"), mode=0o700)
    try:
        append_event(run_dir.events, Kind.SUBMITTED, number, scheduler=job.scheduler)
    except OSError as error:
        raise write_error(run_dir.events, error) from error
    run_dir.write(run_dir.native_id, NO_ID)  # reserves space: a full disk must not lose the id of a job


def _describe_submission(origins: Mapping[str, str]) -> dict[str, Any]:
    return {
        "origins": dict(origins),
        "versions": {"echelon": __version__, "python": sys.version.split()[0]},
        "git_commit": git.describe_commit(Path.cwd()),
    }


def _remove_run_dirs(run_dirs: Sequence[RunDir]) -> None:
    import shutil

    for run_dir in run_dirs:
        shutil.rmtree(run_dir.path, ignore_errors=True)
