"""From a Job to a run: its directory filled, its script handed to the scheduler."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.arrays import any_element, element, parse_indices
from echelon.bundle import node_side
from echelon.config.enclosure_checks import check_enclosure
from echelon.environments import node_script
from echelon.errors import ConfigError
from echelon.events import Kind, append_event
from echelon.inherit import without_outer_run
from echelon.job import Job
from echelon.observe.find import remember
from echelon.registry import member
from echelon.run_dir import RunDir, cannot_write, new_run_id
from echelon.schedulers import Scheduler
from echelon.snapshot import git, link_all, project_of, take
from echelon.version import __version__

NO_ID = b" " * 127 + b"\n"


def start(
    job: Job, origins: Mapping[str, str], secrets: Mapping[str, str], runs: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[RunDir]:  # fmt: skip
    """A new run, or one for each index of an array. What was written before a failure is taken away again."""
    if job.snapshot:
        job = replace(job, project=str(project_of(Path(job.cwd))))
    base = runs / new_run_id(job.name)
    for warning in check_enclosure(job, origins, base, here=_scheduler(job).STARTS_HERE):
        print(f"echelon: warning: {warning}", file=sys.stderr)
    members = _members(job, base)
    run_dirs = [run_dir for run_dir, _ in members]
    made: list[RunDir] = []
    try:
        for remark in _fill(members, origins, made):
            say(remark)
        _launch(job, _script_home(job, base), run_dirs, secrets)
    except BaseException:
        if not any(run_dir.read_native_id() for run_dir in run_dirs):
            _take_away(made)
        raise
    for run_dir in run_dirs:
        remember(run_dir)
    return run_dirs


def _members(job: Job, base: Path) -> list[tuple[RunDir, Job]]:
    """In an array each run's own job knows its one index, so that it can be resumed alone."""
    if job.booking.array is None:
        return [(RunDir(base), job)]
    indices = parse_indices(job.booking.array)
    return [(element(base, one), replace(job, booking=replace(job.booking, array=str(one)))) for one in indices]


def _script_home(job: Job, base: Path) -> RunDir:
    return RunDir(base) if job.booking.array is None else any_element(base, _scheduler(job).ARRAY_INDEX)


def _fill(members: Sequence[tuple[RunDir, Job]], origins: Mapping[str, str], made: list[RunDir]) -> Sequence[str]:
    """What there is to say of it. Adds to `made` as it goes."""
    facts = _facts(origins)
    remarks: Sequence[str] = ()
    first = members[0][0]
    for run_dir, job in members:
        run_dir.create()
        made.append(run_dir)
        if run_dir is first:
            run_dir.write(run_dir.node_side, node_side())
            if job.snapshot:
                taken = take(job, run_dir, run_dir.path.parent)
                facts, remarks = {**facts, "snapshot": taken.facts}, taken.remarks
        else:
            _share(first, run_dir)
        run_dir.write_description(job, {"run_id": run_dir.run_id, **facts})
    return remarks


def _share(first: RunDir, run_dir: RunDir) -> None:
    """What is the same for all of an array is there once, however long it is."""
    run_dir.node_side.hardlink_to(first.node_side)
    if first.code.exists():
        link_all(first.code, run_dir.code)
    if first.code_diff.exists():
        run_dir.code_diff.hardlink_to(first.code_diff)


def resume(run_dir: RunDir, environ: Mapping[str, str]) -> None:
    """The next attempt of a run that has ended, with what is in the environment now for its secrets."""
    job = run_dir.read_job()
    missing = [name for name in job.secret_env if name not in environ]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not set",
            origin=str(run_dir.description),
            why="the run was started with it; values that look like secrets are never written down",
            hint=f"export {missing[0]}=..., then echelon resume {run_dir.run_id}",
        )
    _launch(job, run_dir, [run_dir], {})


def cancel(run_dir: RunDir) -> bool:
    """Asks for the end of the run; false if there was nothing left to end. The mark comes first: who sees the
    job end then knows that a person asked for it."""
    again = run_dir.cancel_mark.exists()
    run_dir.write(run_dir.cancel_mark, f"{time.time():.3f}\n".encode())
    return _scheduler(run_dir.read_job()).cancel(run_dir, again=again)


def _launch(job: Job, home: RunDir, run_dirs: Sequence[RunDir], secrets: Mapping[str, str]) -> None:
    """One submission of one script; `home` is the run's folder as the script knows it."""
    scheduler = _scheduler(job)
    script = scheduler.render(job, home).encode(errors="surrogateescape")
    for run_dir in run_dirs:
        _prepare_attempt(job, run_dir, script)
    native_id = scheduler.submit(run_dirs[0], {**without_outer_run(os.environ), **secrets})
    for run_dir in run_dirs:
        array = run_dir.read_job().booking.array
        own_id = native_id if array is None else scheduler.element_id(native_id, int(array))
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
        raise cannot_write(run_dir.events, error) from error
    run_dir.write(run_dir.native_id, NO_ID)  # room for it: a job that runs must never be without its id


def _scheduler(job: Job) -> Scheduler:
    scheduler: Scheduler = member("scheduler", job.scheduler)
    return scheduler


def _facts(origins: Mapping[str, str]) -> dict[str, Any]:
    return {
        "origins": dict(origins),
        "versions": {"echelon": __version__, "python": sys.version.split()[0]},
        "git_commit": git.description(Path.cwd()),
    }


def _take_away(run_dirs: Sequence[RunDir]) -> None:
    import shutil

    for run_dir in run_dirs:
        shutil.rmtree(run_dir.path, ignore_errors=True)
