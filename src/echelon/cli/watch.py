"""What a person sees while a run goes on, and what Ctrl-C does to it."""

from __future__ import annotations

import select
import signal
import sys
from types import FrameType

import click

from echelon.cli.output import say, write_bytes
from echelon.exit_codes import NO_VERDICT
from echelon.node.wake import wake_on
from echelon.observe.follow import Follower
from echelon.observe.status import RunStatus
from echelon.observe.why import verdict_of
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.submit import cancel


def follow_to_the_end(run_dir: RunDir, *, attempt: int) -> int:
    """The run's exit code. Ctrl-C asks once on a terminal; without one, or the second time, it cancels."""
    _interrupt_on_signals()
    follower = Follower(run_dir, attempt=attempt, write=write_bytes, say=say)
    may_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    while True:
        try:
            return _conclude(run_dir, follower.to_the_end())
        except KeyboardInterrupt:
            if may_ask and _chooses_to_detach():
                say(f"detached: echelon logs -f {run_dir.run_id} follows, echelon cancel {run_dir.run_id} ends it")
                return 0
            may_ask = False
            say(f"cancelling {run_dir.run_id}")
            cancel(run_dir)


def _interrupt_on_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _chooses_to_detach() -> bool:
    try:
        wake = wake_on(signal.SIGINT, signal.SIGTERM)  # input() can miss a Ctrl-C that comes just before it waits
        while True:
            click.echo("\nThe run goes on. [d]etach from it, or [c]ancel it? [d]: ", err=True, nl=False)
            readable, _, _ = select.select([sys.stdin, wake], [], [])
            answer = "c" if wake in readable else sys.stdin.readline().strip().lower() or "d"
            if answer in ("d", "detach", "c", "cancel"):
                return answer.startswith("d")
    except KeyboardInterrupt:
        return False
    finally:
        _interrupt_on_signals()


def _conclude(run_dir: RunDir, status: RunStatus) -> int:
    for remark in status.remarks:
        say(f"warning: {remark}")
    if status.state is JobState.SUCCEEDED:
        say(f"{run_dir.run_id} succeeded")
    else:
        click.echo(verdict_of(run_dir, status), err=True)
    return NO_VERDICT if status.exit_code is None else status.exit_code
