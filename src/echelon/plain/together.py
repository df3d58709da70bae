"""Where no scheduler ends all nodes when one fails: each looks for a file that says so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import timedelta

from echelon.job import Job
from echelon.plain.launchers import launch

STATE_FOLDER = ('rm -rf "$JOB_STATE" && mkdir -m 700 "$JOB_STATE" && trap \'rm -rf "$JOB_STATE"\' EXIT || exit',)
OWN_STATE = ("JOB_STATE=$(mktemp -d) && trap 'rm -rf \"$JOB_STATE\"' EXIT || exit",)
START = (
    "# A node that fails, or does not get as far as its ranks, is of no use to the others: they are told to stop.",
    'start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }',
)


def waiting(job: Job, *, until_the_limit: bool) -> Iterator[str]:
    """Until all nodes are through, with an eye on the clock."""
    yield 'while [ "$(jobs -rp)" ]; do sleep 1 # and no longer: a trap waits for a command to end'
    limit = job.resources.time_limit
    if limit is not None:
        yield f'  [ $SECONDS -lt {_seconds_before_the_end(job, limit)} ] || touch "$JOB_STATE/notice" # stop soon'
    if limit is not None and until_the_limit:
        yield f'  [ $SECONDS -lt {int(limit.total_seconds())} ] || {{ note 124; touch "$JOB_STATE/stop"; }}'
    yield "done"
    yield 'code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)'


def launch_and_watch(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    """torchrun ends its own ranks; it is told to only where the fault is on another node."""
    yield from launch(job, environ, ending=" &")
    yield 'until [ -e "$JOB_STATE/stop" ] || ! kill -0 $! 2>/dev/null; do sleep 1; done'
    yield '[ ! -e "$JOB_STATE/stop" ] || { sleep 5 && kill -TERM $!; } 2>/dev/null # it may be about to end by itself'
    yield "wait $!"


def _seconds_before_the_end(job: Job, limit: timedelta) -> int:
    return max(0, math.floor((limit - job.policies.notice).total_seconds()))
