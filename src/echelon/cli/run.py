"""`echelon run`: start, follow to the end, exit with the job's code."""

from __future__ import annotations

import os
from typing import Any

import click

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
    run_dir = start(request.job, request.origins(), request.secrets, runs_folder(os.environ))
    say(f"{run_dir.run_id}: {request.summary(run_dir.read_native_id())}")
    return follow_to_the_end(run_dir, attempt=0)
