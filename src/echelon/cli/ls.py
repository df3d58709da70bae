"""`echelon ls`: lists the runs, newest last."""

from __future__ import annotations

import os

import click

from echelon.backends import backend
from echelon.cli._options import debug_option
from echelon.cli._output import format_age, print_json, print_table, say
from echelon.codec import encode
from echelon.errors import EchelonError
from echelon.observe.find import RunScan, SkippedRun, scan_runs
from echelon.observe.status import RunStatus, statuses
from echelon.run_dir import RunDir
from echelon.text import format_steps


@click.command(help="List runs, newest last.")
@click.option(
    "-n", "--last", type=click.IntRange(min=0), default=20, show_default=True, help="Maximum number of runs; 0 for all."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def command(last: int, as_json: bool) -> None:
    known = scan_runs(os.environ)
    runs = [run for run in known.runs if _is_usable(run, known)][-last:]
    for note in known.notes():
        say(note)
    found = statuses(runs)
    if as_json:
        print_json([encode(status) for status in found])
    elif not found:
        say("no runs found; start one with echelon run train.py")
    else:
        print_table(("run", "state", "size", "age", "step", "reason"), [_table_row(status) for status in found])


def _is_usable(run: RunDir, known: RunScan) -> bool:
    try:
        backend(run.read_job().scheduler)
    except EchelonError as problem:
        known.skipped.append(SkippedRun(run_id=run.run_id, problem=problem))
        return False
    return True


def _table_row(status: RunStatus) -> tuple[str, ...]:
    size = f"{status.nodes}x{status.procs_per_node}"
    step = format_steps(status.step, status.saved)
    return status.run_id, status.state.value, size, format_age(status.submitted), step, status.cause
