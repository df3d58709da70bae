"""`echelon status`: shows the state of a run."""

from __future__ import annotations

import os
import time

import click

from echelon.cli._options import debug_option
from echelon.cli._output import find_run_or_latest, format_age, optional_run, print_json, print_table
from echelon.codec import encode
from echelon.observe.status import RunStatus, status_of
from echelon.text import format_steps, plural


@click.command(help="Show the state of a run, given by id, unique prefix, name or path. Without RUN the latest run.")
@optional_run
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def command(run: str | None, as_json: bool) -> None:
    status = status_of(find_run_or_latest(run, os.environ))
    if as_json:
        print_json(encode(status))
    else:
        print_table(("what", "value"), _table_rows(status))


def _table_rows(status: RunStatus) -> list[tuple[str, str]]:
    pairs = (
        ("run", status.run_id),
        ("state", status.state.value),
        ("reason", status.cause),
        ("ended by", status.reason if status.fault else ""),
        ("expected start", status.expected_start and time.strftime("%F %H:%M", time.localtime(status.expected_start))),
        ("exit code", status.exit_code),
        ("size", f"{plural(status.nodes, 'node')} x {plural(status.procs_per_node, 'rank')}"),
        ("attempt", status.attempt),
        ("generation", status.generation),
        ("step", format_steps(status.step, status.saved)),
        ("slow", "; ".join(status.slow)),
        ("warning", "; ".join(remark for remark in status.remarks if remark not in status.slow)),
        ("last fault", status.last_fault if status.last_fault != status.fault else ""),
        ("submitted", f"{format_age(status.submitted)} ago"),
        ("backend", ", ".join(filter(None, (status.scheduler, status.native_id, status.native)))),
        ("directory", status.path),
        ("try", status.hint),
    )
    return [(name, str(value)) for name, value in pairs if value not in (None, "")]
