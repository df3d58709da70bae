"""`echelon cancel`: end a run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click

from echelon.cli.options import debug_option
from echelon.cli.output import say
from echelon.command import typed
from echelon.errors import ConfigError, SchedulerError
from echelon.job import Job
from echelon.observe.find import find_runs
from echelon.observe.status import status_of, statuses
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.schedulers import Scheduler
from echelon.submit import cancel

PATIENCE_SECONDS = 30.0
QUEUE_PATIENCE_SECONDS = 90.0  # Slurm itself waits for 30 s between TERM and KILL


@click.command(help="End a run, or all runs of an array: TERM to the ranks, KILL after the grace.")
@click.argument("run")
@debug_option
def command(run: str) -> None:
    run_dirs = find_runs(run, os.environ)
    now = statuses(run_dirs)
    if all(status.state.ended for status in now):
        raise ConfigError(
            f"{run} has already ended",
            why=f"it is {now[0].state.value}",
            hint="echelon ls shows what runs",
        )
    asked = [one for one, status in zip(run_dirs, now, strict=True) if not status.state.ended]
    for run_dir in asked:
        _ask(run_dir)
    _wait(asked, run_dirs[0].read_job())


def _ask(run_dir: RunDir) -> None:
    if not cancel(run_dir) and not status_of(run_dir).state.ended:
        raise SchedulerError(
            f"{run_dir.run_id} cannot be cancelled",
            origin=str(run_dir.native_id),
            why="nothing goes by the id that is written there, yet something holds the run's lease",
            hint=f"see who does: {typed(('cat', str(run_dir.lease)))}",
        )


def _wait(run_dirs: Sequence[RunDir], job: Job) -> None:
    scheduler: Scheduler = member("scheduler", job.scheduler)
    patience = PATIENCE_SECONDS if scheduler.STARTS_HERE else QUEUE_PATIENCE_SECONDS
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
        time.sleep(0.2 if scheduler.STARTS_HERE else scheduler.pause(time.monotonic() - began))
    raise SchedulerError(
        f"{left[0].run_id} has not ended {seconds:.0f} s after it was asked to",
        hint=f"echelon cancel {left[0].run_id}, once more, is less patient",
    )
