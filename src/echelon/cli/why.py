"""`echelon why`: prints the verdict on a run."""

from __future__ import annotations

import os

import click

from echelon.cli._options import debug_option
from echelon.cli._output import find_run_or_latest, optional_run, print_json, print_verdict
from echelon.observe.full_verdict import format_full, verdict_json
from echelon.observe.status import status_of
from echelon.observe.verdict import format_verdict

MOST_FULL_CHARACTERS = 1_000_000


@click.command(help="Explain why a run failed: the rank, its host, the error and its log. Without RUN the latest run.")
@optional_run
@click.option("--full", is_flag=True, help="Also print the stacks and process states of all ranks of a hang.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def command(run: str | None, full: bool, as_json: bool) -> None:
    run_dir = find_run_or_latest(run, os.environ)
    status = status_of(run_dir)
    if as_json:
        print_json(verdict_json(run_dir, status))
    elif full:
        print_verdict(format_full(run_dir, status), most=MOST_FULL_CHARACTERS)
    else:
        print_verdict(format_verdict(run_dir, status))
