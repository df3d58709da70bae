"""`echelon submit`: start a run and return at once with its id."""

from __future__ import annotations

import os
from typing import Any

import click

from echelon.cli.options import ScriptCommand, debug_option, job_options, request_of
from echelon.cli.output import say
from echelon.run_dir import RunDir, runs_folder
from echelon.submit import start


@click.command(cls=ScriptCommand, help="Start a run that goes on by itself; prints its id.")
@job_options
@debug_option
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> None:
    request = request_of(ctx, flags, inside=False)
    run_dirs = start(request.job, request.origins(), request.secrets, runs_folder(os.environ), say)
    for run_dir in run_dirs:
        click.echo(run_dir.run_id)
    say(f"{request.summary(run_dirs)}; echelon logs -f {run_dirs[0].run_id} follows {_which(run_dirs)}")


def _which(run_dirs: list[RunDir]) -> str:
    return "it" if len(run_dirs) == 1 else "the first"
