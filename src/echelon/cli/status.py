"""`echelon status`: how a run is doing."""

from __future__ import annotations

import os
import time

import click

from echelon.cli.options import debug_option
from echelon.cli.output import age, print_json, print_table
from echelon.codec import encode
from echelon.observe.find import find_run
from echelon.observe.status import RunStatus, status_of


@click.command(help="How a run is doing, by its id, a unique prefix of it, its name or its path.")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@debug_option
def command(run: str, as_json: bool) -> None:
    status = status_of(find_run(run, os.environ))
    if as_json:
        print_json(encode(status))
    else:
        print_table(("what", "value"), _rows(status))


def _rows(status: RunStatus) -> list[tuple[str, str]]:
    pairs = (
        ("run", status.run_id),
        ("state", status.state.value),
        ("reason", status.reason),
        ("expected start", status.expected_start and time.strftime("%F %H:%M", time.localtime(status.expected_start))),
        ("exit code", status.exit_code),
        ("size", f"{status.nodes} nodes x {status.procs_per_node} ranks"),
        ("attempt", status.attempt),
        ("generation", status.generation),
        ("step", status.step),
        ("last fault", status.last_fault),
        ("submitted", f"{age(status.submitted)} ago"),
        ("scheduler", ", ".join(filter(None, (status.scheduler, status.native_id, status.native)))),
        ("folder", status.path),
        ("try", status.hint),
    )
    return [(name, str(value)) for name, value in pairs if value not in (None, "")]
