"""What a person sees while a run goes on, and what Ctrl-C does to it."""

from __future__ import annotations

import re
import select
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from echelon.arrays import array_of
from echelon.cli.output import say, write_bytes
from echelon.exit_codes import NO_VERDICT
from echelon.node.wake import wake_on
from echelon.observe.follow import Follower, follow
from echelon.observe.status import RunStatus
from echelon.observe.why import verdict_of
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.schedulers import Scheduler
from echelon.states import JobState
from echelon.submit import cancel


def follow_to_the_end(run_dirs: Sequence[RunDir], *, attempt: int) -> int:
    """The run's exit code; of an array the first that is not 0. Ctrl-C asks once on a terminal; without one, or the
    second time, it cancels."""
    _interrupt_on_signals()
    scheduler: Scheduler = member("scheduler", run_dirs[0].read_job().scheduler)
    followers = [_follower(run_dir, attempt, tagged=len(run_dirs) > 1) for run_dir in run_dirs]
    codes: dict[str, int] = {}
    may_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    while True:
        try:
            for _ in follow(followers, scheduler):
                _conclude_new(followers, codes)
            _conclude_new(followers, codes)  # one may have ended just when Ctrl-C came
            return next(filter(None, codes.values()), 0)
        except KeyboardInterrupt:
            left = [follower.run_dir for follower in followers if follower.end is None]
            if may_ask and _chooses_to_detach():
                say(f"detached: {_how_to_go_on(run_dirs)}")
                return 0
            may_ask = False
            say(f"cancelling {', '.join(run_dir.run_id for run_dir in left)}")
            for run_dir in left:
                cancel(run_dir)


def _how_to_go_on(run_dirs: Sequence[RunDir]) -> str:
    if len(run_dirs) > 1:
        return f"echelon ls shows the runs, echelon cancel {array_of(run_dirs[0])} ends them"
    return f"echelon logs -f {run_dirs[0].run_id} follows, echelon cancel {run_dirs[0].run_id} ends it"


def _follower(run_dir: RunDir, attempt: int, *, tagged: bool) -> Follower:
    """In an array every line says whose it is."""
    if not tagged:
        return Follower(run_dir, attempt=attempt, write=write_bytes, say=say)
    index = run_dir.run_id.rpartition("-")[2]
    return Follower(
        run_dir,
        attempt=attempt,
        write=lambda data: write_bytes(re.sub(rb"(?m)^(?=.)", f"{index}".encode(), data)),
        say=lambda text: say(f"{index}: {text}"),
    )


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


def _conclude_new(followers: Sequence[Follower], codes: dict[str, int]) -> None:
    for follower in followers:
        if follower.end is not None and follower.run_dir.run_id not in codes:
            codes[follower.run_dir.run_id] = _conclude(follower.run_dir, follower.end)


def _conclude(run_dir: RunDir, status: RunStatus) -> int:
    for remark in status.remarks:
        say(f"warning: {remark}")
    if status.state is JobState.SUCCEEDED:
        say(f"{run_dir.run_id} succeeded")
    else:
        click.echo(verdict_of(run_dir, status), err=True)
    return NO_VERDICT if status.exit_code is None else status.exit_code
