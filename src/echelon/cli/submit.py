"""`echelon submit`: starts a run, prints its id and returns at once."""

from __future__ import annotations

import os
from typing import Any

import click

from echelon.backends.batch import array_id
from echelon.cli._options import ScriptCommand, build_request, debug_option, job_options
from echelon.cli._output import say
from echelon.run_dir import RunDir, runs_folder
from echelon.submission.submit import start


@click.command(cls=ScriptCommand, help="Start a run in the background; prints its id.")
@job_options
@debug_option
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> None:
    request = build_request(ctx, flags, inside=False)
    run_dirs = start(request.job, request.origins(), request.secrets, runs_folder(os.environ), say)
    for run_dir in run_dirs:
        click.echo(run_dir.run_id)
    say(f"{request.summary(run_dirs)}; {_next_step_hint(run_dirs)}")


def _next_step_hint(run_dirs: list[RunDir]) -> str:
    if run_dirs[0].read_job().booking.array is None:
        return f"echelon logs -f {run_dirs[0].run_id} follows it"
    array = array_id(run_dirs[0])
    return f"array {array}: echelon cancel {array} cancels all of it"
