"""`echelon checkpoints`: what a run has saved."""

from __future__ import annotations

import os

import click

from echelon.cli.options import debug_option
from echelon.cli.output import age, print_json, print_table, say
from echelon.codec import encode
from echelon.observe.checkpoints import Listed, find_source, listed
from echelon.wording import sized


@click.command(help="The checkpoints of a run, or of a folder of them, oldest first; exits with 1 if one is damaged.")
@click.argument("run")
@click.option("--verify", is_flag=True, help="Read every byte and compare its CRC, not only names and sizes.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@debug_option
def command(run: str, verify: bool, as_json: bool) -> int:
    source = find_source(run, os.environ)
    found = listed(source.folder, verify=verify)
    if as_json:
        print_json([encode(one) for one in found])
    elif not found:
        say(f"no checkpoints in {source.folder}")
    else:
        print_table(("step", "size", "age", "ranks", "verified"), [_row(one) for one in found])
    return 1 if any(one.problem for one in found) else 0


def _row(one: Listed) -> tuple[str, ...]:
    if one.size is None:
        return str(one.step), "-", "-", "-", f"no: {one.problem}"
    verified = "yes" if one.verified else "sizes only"
    return str(one.step), sized(one.size), age(one.time), str(one.ranks), verified
