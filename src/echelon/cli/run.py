"""`echelon run`: starts a run, follows it to its end and exits with its exit code."""

from __future__ import annotations

import os
from typing import Any

import click

from echelon.backends.batch import array_id
from echelon.cli._options import ScriptCommand, build_request, debug_option, job_options
from echelon.cli._output import say
from echelon.cli._watch import follow_hint, follow_to_the_end
from echelon.run_dir import runs_folder
from echelon.submission.submit import start


@click.command(cls=ScriptCommand, help="Run a script on every rank and follow it to its end.")
@job_options
@debug_option
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> int:
    request = build_request(ctx, flags)
    run_dirs = start(request.job, request.origins(), request.secrets, runs_folder(os.environ), say)
    name = run_dirs[0].run_id if request.job.booking.array is None else array_id(run_dirs[0])
    try:
        say(f"{name}: {request.summary(run_dirs)}")
        return follow_to_the_end(run_dirs, attempt=0)
    except KeyboardInterrupt:
        say(f"detached: {follow_hint(run_dirs)}")
        raise
