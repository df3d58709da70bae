"""`echelon logs`: prints the output of the ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import click

from echelon.attempt_dir import AttemptDir
from echelon.backends import backend
from echelon.cli._options import debug_option
from echelon.cli._output import find_run_or_latest, optional_run, print_json, write_bytes
from echelon.errors import ConfigError
from echelon.observe.follow import QueryTimer
from echelon.observe.logs import NodeTail, RankTail, rank_logs
from echelon.observe.status import status_of
from echelon.run_dir import RunDir


@click.command(help="Print the output of the ranks; each line starts with its rank. Without RUN the latest run.")
@optional_run
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run has ended.")
@click.option("--rank", type=int, help="Print only this rank, without its number in front of each line.")
@click.option("--node", help="Print only this node, for example node0.")
@click.option("--attempt", type=int, help="Print only this attempt. [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print the paths of the log files as JSON.")
@debug_option
def command(
    run: str | None, follow: bool, rank: int | None, node: str | None, attempt: int | None, as_json: bool
) -> None:
    run_dir = find_run_or_latest(run, os.environ)
    if as_json:
        print_json([str(path) for path in rank_logs(_chosen_attempts(run_dir, attempt), rank=rank, node=node)])
        return
    output = RankOutput(run_dir, rank=rank, node=node, attempt=attempt)
    if not output.exists() and not follow:
        raise _no_output_error(run_dir, rank, node, attempt)
    _print_output(run_dir, output, follow)


def _chosen_attempts(run_dir: RunDir, attempt: int | None) -> list[AttemptDir]:
    return [one for one in run_dir.attempts() if attempt is None or one.number == attempt]


class RankOutput:
    """The requested output that has not been read yet."""

    def __init__(self, run_dir: RunDir, *, rank: int | None, node: str | None, attempt: int | None) -> None:
        self._run_dir, self._rank, self._node, self._attempt = run_dir, rank, node, attempt
        self._tails: dict[Path, NodeTail | RankTail] = {}

    def _sources(self) -> Iterator[NodeTail | RankTail]:
        for attempt in _chosen_attempts(self._run_dir, self._attempt):
            if self._rank is not None:
                yield self._tails.setdefault(attempt.rank_log(self._rank), RankTail(attempt, self._rank))
                continue
            for index in attempt.node_indices():
                if self._node in (None, index.stem):
                    yield self._tails.setdefault(index, NodeTail(index))

    def exists(self) -> bool:
        attempts = _chosen_attempts(self._run_dir, self._attempt)
        if self._rank is not None:
            return bool(rank_logs(attempts, rank=self._rank, node=None))
        return any(self._node in (None, index.stem) for attempt in attempts for index in attempt.node_indices())

    def write_new(self, *, to_the_end: bool) -> None:
        for tail in self._sources():
            while data := tail.read() if isinstance(tail, RankTail) else tail.read(to_the_end=to_the_end):
                write_bytes(data)
        write_bytes(b"")  # raises if the reader is gone, even if there is nothing new


def _print_output(run_dir: RunDir, output: RankOutput, follow: bool) -> None:
    pace = QueryTimer(backend(run_dir.read_job().scheduler))
    ended = not follow or status_of(run_dir).state.ended
    while True:
        output.write_new(to_the_end=ended)
        if ended:
            return
        if pace.is_due():
            ended = status_of(run_dir).state.ended
        if not ended:
            time.sleep(pace.poll_seconds)


def _no_output_error(run_dir: RunDir, rank: int | None, node: str | None, attempt: int | None) -> ConfigError:
    asked = f"rank {rank}" if rank is not None else f"node {node}" if node is not None else "any rank"
    when = "" if attempt is None else f" in attempt {attempt}"
    return ConfigError(
        f"{run_dir.run_id} has no output of {asked}{when}",
        origin="command line",
        why=_describe_output(run_dir) or "no rank has started yet",
        hint=f"echelon logs {run_dir.run_id}, or echelon status {run_dir.run_id}",
    )


def _describe_output(run_dir: RunDir) -> str:
    nodes = sorted({path.stem for attempt in run_dir.attempts() for path in attempt.node_indices()})
    if not nodes:
        return ""
    resources = run_dir.read_job().resources
    last_rank = resources.nodes * resources.procs_per_node - 1
    attempts = ", ".join(str(attempt.number) for attempt in run_dir.attempts())
    return f"it has ranks 0 to {last_rank}, nodes {', '.join(nodes)}, attempts {attempts}"
