"""`echelon run`: start, follow to the end, exit with the job's code."""

from __future__ import annotations

import os
from typing import Any

import click

from echelon.arrays import array_of
from echelon.cli.options import ScriptCommand, debug_option, job_options, request_of
from echelon.cli.output import say
from echelon.cli.watch import follow_to_the_end
from echelon.run_dir import runs_folder
from echelon.submit import start


@click.command(cls=ScriptCommand, help="Run a script on every rank and follow it to its end.")
@job_options
@debug_option
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> int:
    request = request_of(ctx, flags)
    run_dirs = start(request.job, request.origins(), request.secrets, runs_folder(os.environ), say)
    name = run_dirs[0].run_id if request.job.booking.array is None else array_of(run_dirs[0])
    say(f"{name}: {request.summary(run_dirs)}")
    return follow_to_the_end(run_dirs, attempt=0)
