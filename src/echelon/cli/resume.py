"""`echelon resume`: starts the next attempt of a run that has ended."""

from __future__ import annotations

import os

import click

from echelon.cli._options import debug_option
from echelon.cli._output import say
from echelon.cli._watch import follow_to_the_end
from echelon.observe.find import find_run
from echelon.submission.submit import resume


@click.command(help="Start the next attempt of a run that has ended, and follow it.")
@click.argument("run")
@click.option("--detach", is_flag=True, help="Return at once instead of following the run.")
@debug_option
def command(run: str, detach: bool) -> int:
    run_dir = find_run(run, os.environ)
    attempt = resume(run_dir, os.environ, say)
    say(f"{run_dir.run_id}: attempt {attempt}")
    return 0 if detach else follow_to_the_end([run_dir], attempt=attempt)
