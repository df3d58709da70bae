"""`echelon logs`: what the ranks wrote."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from echelon.cli.options import debug_option
from echelon.cli.output import print_json, write_bytes
from echelon.errors import ConfigError
from echelon.observe.find import find_run
from echelon.observe.follow import Pace
from echelon.observe.logs import Tail, chosen_logs
from echelon.observe.status import status_of
from echelon.registry import member
from echelon.run_dir import RunDir


@click.command(help="What the ranks of a run wrote, each line tagged with its rank.")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--rank", type=int, help="Only this rank, untagged.")
@click.option("--node", help="Only this node.")
@click.option("--attempt", type=int, help="Only this attempt. [default: all]")
@click.option("--json", "as_json", is_flag=True, help="The log files as JSON, not what is in them.")
@debug_option
def command(run: str, follow: bool, rank: int | None, node: str | None, attempt: int | None, as_json: bool) -> None:
    run_dir = find_run(run, os.environ)
    if as_json:
        print_json([str(path) for path in _paths(run_dir, rank, node, attempt)])
        return
    paths = _paths(run_dir, rank, node, attempt)
    if not paths and not follow:
        raise _nothing_there(run_dir, rank, node)
    _print(run_dir, follow, rank, node, attempt)


def _paths(run_dir: RunDir, rank: int | None, node: str | None, attempt: int | None) -> list[Path]:
    attempts = [one for one in run_dir.attempts() if attempt is None or one.number == attempt]
    return chosen_logs(attempts, rank=rank, node=node)


def _print(run_dir: RunDir, follow: bool, rank: int | None, node: str | None, attempt: int | None) -> None:
    tails: dict[Path, Tail] = {}
    pace = Pace(member("scheduler", run_dir.read_job().scheduler))
    ended = not follow or status_of(run_dir).state.ended
    while True:
        for path in _paths(run_dir, rank, node, attempt):
            write_bytes(tails.setdefault(path, Tail(path)).read(to_the_end=ended))
        if ended:
            return
        if pace.is_due():
            ended = status_of(run_dir).state.ended
        if not ended:
            time.sleep(pace.poll_seconds)


def _nothing_there(run_dir: RunDir, rank: int | None, node: str | None) -> ConfigError:
    nodes = sorted({path.stem for attempt in run_dir.attempts() for path in attempt.node_logs()})
    asked = f"rank {rank}" if rank is not None else f"node {node}" if node is not None else "any rank"
    return ConfigError(
        f"{run_dir.run_id} has no log of {asked}",
        why=f"its nodes are {', '.join(nodes)}" if nodes else "nothing has started yet",
        hint=f"echelon logs -f {run_dir.run_id}",
    )
