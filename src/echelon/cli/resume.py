"""`echelon resume`: the next attempt of a run that has ended."""

from __future__ import annotations

import os

import click

from echelon.cli.options import debug_option
from echelon.cli.output import say
from echelon.cli.watch import follow_to_the_end
from echelon.errors import ConfigError
from echelon.observe.find import find_run
from echelon.observe.status import status_of
from echelon.submit import resume


@click.command(help="Start the next attempt of a run that has ended, and follow it.")
@click.argument("run")
@click.option("--detach", is_flag=True, help="Return at once.")
@debug_option
def command(run: str, detach: bool) -> int:
    run_dir = find_run(run, os.environ)
    state = status_of(run_dir).state
    if not state.ended:
        raise ConfigError(
            f"{run_dir.run_id} is still {state.value}",
            why="a run has one attempt at a time",
            hint=f"echelon logs -f {run_dir.run_id}, or echelon cancel {run_dir.run_id} first",
        )
    attempt = run_dir.next_attempt()
    resume(run_dir, os.environ)
    say(f"{run_dir.run_id}: attempt {attempt}")
    return 0 if detach else follow_to_the_end([run_dir], attempt=attempt)
