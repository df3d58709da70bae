"""`echelon ls`: the runs, newest last."""

from __future__ import annotations

import os

import click

from echelon.cli.options import debug_option
from echelon.cli.output import age, print_json, print_table, say
from echelon.codec import encode
from echelon.errors import EchelonError
from echelon.observe.find import known_runs
from echelon.observe.status import RunStatus, statuses
from echelon.registry import member
from echelon.run_dir import RunDir


@click.command(help="List runs, newest last.")
@click.option("-n", "--last", default=20, show_default=True, help="How many at most; 0 for all.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@debug_option
def command(last: int, as_json: bool) -> None:
    runs = list(filter(_is_usable, known_runs(os.environ)))[-last:]
    found = statuses(runs)
    if as_json:
        print_json([encode(status) for status in found])
    elif not found:
        say("no runs yet; echelon run train.py makes one")
    else:
        print_table(("run", "state", "size", "age", "reason"), [_row(status) for status in found])


def _is_usable(run: RunDir) -> bool:
    try:
        member("scheduler", run.check_trusted().read_job().scheduler)
    except EchelonError as error:
        say(f"left out {run.run_id}: {error.what}")
        return False
    return True


def _row(status: RunStatus) -> tuple[str, ...]:
    size = f"{status.nodes}x{status.procs_per_node}"
    return status.run_id, status.state.value, size, age(status.submitted), status.reason
