"""`echelon cancel`: end a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence

import click

from echelon.backends import backend
from echelon.cli._options import debug_option
from echelon.cli._output import say
from echelon.errors import ConfigError, EchelonError, SchedulerError
from echelon.job import Job
from echelon.observe.find import find_runs_or_jobs
from echelon.observe.status import RunStatus, status_of, statuses
from echelon.run_dir import RunDir
from echelon.shell import format_command
from echelon.states import JobState
from echelon.submission.submit import cancel

CANCEL_TIMEOUT_SECONDS = 30.0
QUEUE_CANCEL_TIMEOUT_SECONDS = 90.0  # Slurm itself waits for 30 s between TERM and KILL


@click.command(help="End a run, or all runs of an array by its id: SIGTERM to the ranks, SIGKILL after --grace.")
@click.argument("run")
@debug_option
def command(run: str) -> None:
    run_dirs = find_runs_or_jobs(run, os.environ)
    now = statuses(run_dirs)
    states = pair_with_states(run_dirs, now)
    lost = [run_dir for run_dir, state in states if state is JobState.LOST]
    asked, errors = cancel_all(
        [*cancel_order(states), *lost], lambda one: _cancel_lost_run(one) if one in lost else _cancel_run(one)
    )
    if not asked and not errors:
        raise ConfigError(
            f"{run} has already ended",
            why=f"it is {now[0].state.value}",
            hint="echelon ls lists the runs and their states",
        )
    if asked:
        _wait_until_ended(asked, run_dirs[0].read_job())
    if errors:
        raise errors[0]


def pair_with_states(run_dirs: Sequence[RunDir], now: Sequence[RunStatus]) -> list[tuple[RunDir, JobState]]:
    return [(run_dir, status.state) for run_dir, status in zip(run_dirs, now, strict=True)]


CANCEL_PRIORITY = {JobState.STARTING: 1, JobState.RUNNING: 2}
"""Runs that have nodes are cancelled after those that wait."""


def cancel_order(runs: Iterable[tuple[RunDir, JobState]]) -> list[RunDir]:
    """Waiting runs come first: a scheduler starts the next element of an array when a running one ends. Pure."""
    living = [(run_dir, state) for run_dir, state in runs if not state.ended]
    return [run_dir for run_dir, _ in sorted(living, key=lambda one: CANCEL_PRIORITY.get(one[1], 0))]


def cancel_all(run_dirs: Sequence[RunDir], ask: Callable[[RunDir], bool]) -> tuple[list[RunDir], list[EchelonError]]:
    """Tries every run. Returns the runs that were cancelled and the errors of the others."""
    done: list[RunDir] = []
    errors: list[EchelonError] = []
    for run_dir in run_dirs:
        try:
            if ask(run_dir):
                done.append(run_dir)
        except EchelonError as error:
            if len(run_dirs) > 1:
                say(f"{run_dir.run_id} was not cancelled: {error.why or error.what}")
            errors.append(error)
    return done, errors


def _cancel_lost_run(run_dir: RunDir) -> bool:
    """Cancels a run in state LOST if its scheduler knows the job after all. Otherwise the run stays LOST."""
    found = cancel(run_dir)
    if not found:
        run_dir.cancel_mark.unlink(missing_ok=True)
    return found


def _cancel_run(run_dir: RunDir) -> bool:
    if not cancel(run_dir) and not status_of(run_dir).state.ended:
        raise SchedulerError(
            f"{run_dir.run_id} cannot be cancelled",
            origin=str(run_dir.native_id),
            why="no such job, but the run's lease is still held",
            hint=f"{format_command(('cat', str(run_dir.lease)))} shows the process that holds it",
        )
    return True


def _wait_until_ended(run_dirs: Sequence[RunDir], job: Job) -> None:
    ours = backend(job.scheduler)
    patience = CANCEL_TIMEOUT_SECONDS if ours.runs_script_here else QUEUE_CANCEL_TIMEOUT_SECONDS
    seconds = patience + job.policies.grace.total_seconds()
    began = time.monotonic()
    left = list(run_dirs)
    while time.monotonic() < began + seconds:
        for run_dir, status in zip(list(left), statuses(left), strict=True):
            if status.state.ended:
                say(f"{run_dir.run_id} is {status.state.value}")
                left.remove(run_dir)
        if not left:
            return
        time.sleep(0.2 if ours.runs_script_here else ours.query_interval(time.monotonic() - began))
    raise SchedulerError(
        f"{left[0].run_id} has not ended within {seconds:.0f} s",
        hint=f"run echelon cancel {left[0].run_id} again to force it",
    )
