"""What a person sees while a run goes on, and what Ctrl-C does to it."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from echelon.cli.output import say, write_bytes
from echelon.observe.follow import Follower
from echelon.observe.status import RunStatus
from echelon.observe.why import verdict_of
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.states import JobState

NO_EXIT_CODE = 70  # EX_SOFTWARE: the run is lost, and success must not be made of that


def follow_to_the_end(run_dir: RunDir, *, attempt: int) -> int:
    """The run's exit code. Ctrl-C asks once on a terminal; without one, or the second time, it cancels."""
    signal.signal(signal.SIGTERM, _interrupt)
    follower = Follower(run_dir, attempt=attempt, write=write_bytes, say=say)
    may_ask = sys.stdin.isatty() and sys.stderr.isatty()
    while True:
        try:
            return _conclude(run_dir, follower.to_the_end())
        except KeyboardInterrupt:
            if may_ask and _chooses_to_detach():
                say(f"detached: echelon logs -f {run_dir.run_id} follows, echelon cancel {run_dir.run_id} ends it")
                return 0
            may_ask = False
            say(f"cancelling {run_dir.run_id}")
            member("scheduler", run_dir.read_job().scheduler).cancel(run_dir)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _chooses_to_detach() -> bool:
    try:
        answer = click.prompt(
            "\nThe run goes on. Detach from it, or cancel it?",
            type=click.Choice(["d", "c"]),
            default="d",
            err=True,
        )
    except (click.Abort, KeyboardInterrupt):
        return False
    return bool(answer == "d")


def _conclude(run_dir: RunDir, status: RunStatus) -> int:
    for remark in status.remarks:
        say(f"warning: {remark}")
    if status.state is JobState.SUCCEEDED:
        say(f"{run_dir.run_id} succeeded")
    else:
        click.echo(verdict_of(run_dir, status), err=True)
    return NO_EXIT_CODE if status.exit_code is None else status.exit_code
