"""`echelon checkpoints`: lists and verifies the checkpoints of a run."""

from __future__ import annotations

import os

import click

from echelon.cli._options import debug_option
from echelon.cli._output import format_age, print_json, print_table, say
from echelon.codec import encode
from echelon.observe.checkpoints import CheckpointEntry, find_checkpoint_source, list_checkpoints
from echelon.text import format_size


@click.command(help="List the checkpoints of a run or of a folder, oldest first. Exits with 1 if one is damaged.")
@click.argument("run")
@click.option("--verify", is_flag=True, help="Read all data and compare CRCs, not only names and sizes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def command(run: str, verify: bool, as_json: bool) -> int:
    source = find_checkpoint_source(run, os.environ)
    found = list_checkpoints(source.folder, verify=verify)
    if as_json:
        print_json([encode(one) for one in found])
    elif not found:
        say(f"no checkpoints in {source.folder}")
    else:
        print_table(("step", "size", "age", "ranks", "verified"), [_table_row(one) for one in found])
    return 1 if any(one.problem for one in found) else 0


def _table_row(one: CheckpointEntry) -> tuple[str, ...]:
    if one.size is None:
        return str(one.step), "-", "-", "-", f"no: {one.problem}"
    verified = "yes" if one.verified else "sizes only"
    return str(one.step), format_size(one.size), format_age(one.time), str(one.ranks), verified
