"""`echelon cancel`: end a run."""

from __future__ import annotations

import os
import time

import click

from echelon.cli.options import debug_option
from echelon.cli.output import say
from echelon.command import typed
from echelon.errors import ConfigError, SchedulerError
from echelon.job import Job
from echelon.observe.find import find_run
from echelon.observe.status import status_of
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.schedulers import Scheduler
from echelon.submit import cancel

PATIENCE_SECONDS = 30.0


@click.command(help="End a run: TERM to its ranks, KILL after the grace.")
@click.argument("run")
@debug_option
def command(run: str) -> None:
    run_dir = find_run(run, os.environ)
    status = status_of(run_dir)
    if status.state.ended:
        raise ConfigError(
            f"{run_dir.run_id} has already ended",
            why=f"it is {status.state.value}",
            hint="echelon ls shows what runs",
        )
    if not cancel(run_dir) and not status_of(run_dir).state.ended:
        raise SchedulerError(
            f"{run_dir.run_id} cannot be cancelled",
            origin=str(run_dir.native_id),
            why="nothing goes by the id that is written there, yet something holds the run's lease",
            hint=f"see who does: {typed(('cat', str(run_dir.lease)))}",
        )
    _wait(run_dir, run_dir.read_job())


def _wait(run_dir: RunDir, job: Job) -> None:
    scheduler: Scheduler = member("scheduler", job.scheduler)
    seconds = PATIENCE_SECONDS + job.policies.grace.total_seconds()
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        state = status_of(run_dir).state
        if state.ended:
            say(f"{run_dir.run_id} is {state.value}")
            return
        time.sleep(0.2 if scheduler.STARTS_HERE else scheduler.pause(time.monotonic() - began))
    raise SchedulerError(
        f"{run_dir.run_id} has not ended {seconds:.0f} s after it was asked to",
        hint=f"echelon status {run_dir.run_id}",
    )
