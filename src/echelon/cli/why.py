"""`echelon why`: the verdict on a failed run."""

from __future__ import annotations

import os

import click

from echelon.cli.options import debug_option
from echelon.cli.output import print_json
from echelon.codec import encode
from echelon.observe.find import find_run
from echelon.observe.status import read_verdict, status_of
from echelon.observe.why import verdict_of


@click.command(help="Which rank on which host failed, why, and where to read on.")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@debug_option
def command(run: str, as_json: bool) -> None:
    run_dir = find_run(run, os.environ)
    status = status_of(run_dir)
    if as_json:
        print_json({"status": encode(status), "verdict": read_verdict(run_dir, status.attempt)})
    else:
        click.echo(verdict_of(run_dir, status))
