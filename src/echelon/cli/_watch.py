"""Follows runs to their end, and handles Ctrl-C and a closed pipe."""

from __future__ import annotations

import re
import select
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from echelon.backends import backend
from echelon.backends.batch import array_id
from echelon.cli._output import print_verdict, redirect_to_null, say, write_bytes
from echelon.cli.cancel import cancel_order, pair_with_states
from echelon.errors import NO_VERDICT, EchelonError
from echelon.observe.follow import Follower, follow
from echelon.observe.status import RunStatus, status_of, statuses
from echelon.observe.verdict import format_verdict
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.submission.submit import cancel
from echelon.system.signals import open_signal_fd

MOST_INTERRUPTS = 2
"""More interrupts than this during a cancel end the command."""
PIPE_CLOSED = 128 + signal.SIGPIPE  # the exit code of a program that wrote to a closed pipe


class Interrupts:
    """Ctrl-C and SIGTERM. They raise KeyboardInterrupt only after `arm`. Earlier ones are kept for the next `arm`.

    Without this, a second Ctrl-C during a cancel would end the command and leave the run as it is.
    """

    def __init__(self) -> None:
        self.count = 0
        """Interrupts since the last `clear`."""
        self._armed = False

    def listen(self) -> None:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._handle_signal)

    def arm(self) -> None:
        """Raises at once if an interrupt is waiting."""
        self._armed = True
        if self.count:
            self._armed = False
            raise KeyboardInterrupt

    def clear(self) -> None:
        self.count = 0

    def _handle_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._armed or self.count > MOST_INTERRUPTS:
            self._armed = False
            raise KeyboardInterrupt
        if self.count == MOST_INTERRUPTS:
            say("still cancelling; Ctrl-C again to leave without waiting")


def follow_to_the_end(run_dirs: Sequence[RunDir], *, attempt: int) -> int:
    """Returns the run's exit code; for an array the first that is not 0. On a terminal the first Ctrl-C asks whether to
    detach or cancel. The second one cancels. Without a terminal the first one cancels. If the reader of stdout is gone,
    as in `| head`, the run continues."""
    interrupts = Interrupts()
    interrupts.listen()
    followers = [_make_follower(run_dir, attempt, tagged=len(run_dirs) > 1) for run_dir in run_dirs]
    codes: dict[str, int] = {}
    may_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    while True:
        try:
            interrupts.arm()
            for _ in follow(followers, backend(run_dirs[0].read_job().scheduler)):
                _report_new_ends(followers, codes)
            _report_new_ends(followers, codes)  # a run may have ended at the moment of Ctrl-C
            return next(filter(None, codes.values()), 0)
        except BrokenPipeError:
            redirect_to_null(1)
            return _exit_code_without_reader(followers, codes)
        except KeyboardInterrupt:
            interrupts.clear()
            left = [follower.run_dir for follower in followers if follower.end is None]
            if may_ask and _ask_to_detach(interrupts):
                say(f"detached: {follow_hint(run_dirs)}")
                return 0
            may_ask = False
            say(f"cancelling {', '.join(run_dir.run_id for run_dir in left)}")
            for run_dir in _in_cancel_order(left):
                _cancel_or_report(run_dir)


def _in_cancel_order(left: Sequence[RunDir]) -> Sequence[RunDir]:
    return left if len(left) < 2 else cancel_order(pair_with_states(left, statuses(left)))


def _cancel_or_report(run_dir: RunDir) -> None:
    """Cancels a run. A failure is only printed: the run is still followed, to show how it ends."""
    try:
        if cancel(run_dir) or status_of(run_dir).state.ended:
            return
        reason = f"its scheduler has no job {run_dir.read_native_id() or '(not submitted yet)'}"
    except EchelonError as error:
        reason = ": ".join(filter(None, (error.what, error.why)))
    say(f"cannot cancel {run_dir.run_id}: {reason}; Ctrl-C tries again, or echelon cancel {run_dir.run_id}")


def _exit_code_without_reader(followers: Sequence[Follower], codes: dict[str, int]) -> int:
    """The exit code of the runs if all have ended meanwhile; otherwise PIPE_CLOSED, never 0."""
    run_dirs = [follower.run_dir for follower in followers]
    for follower, status in zip(followers, statuses(run_dirs), strict=True):
        follower.end = follower.end or (status if status.state.ended else None)
    _report_new_ends(followers, codes)
    if all(follower.end is not None for follower in followers):
        return next(filter(None, codes.values()), 0)
    say(f"stdout was closed; detached, the run continues: {follow_hint(run_dirs)}")
    return PIPE_CLOSED


def follow_hint(run_dirs: Sequence[RunDir]) -> str:
    if len(run_dirs) > 1:
        return f"echelon ls shows the runs, echelon cancel {array_id(run_dirs[0])} ends them"
    return f"echelon logs -f {run_dirs[0].run_id} follows it, echelon cancel {run_dirs[0].run_id} ends it"


def _make_follower(run_dir: RunDir, attempt: int, *, tagged: bool) -> Follower:
    """`tagged`: each line starts with the index of its run in the array."""
    if not tagged:
        return Follower(run_dir, attempt=attempt, write=write_bytes, say=say)
    index = run_dir.run_id.rpartition("-")[2]
    return Follower(
        run_dir,
        attempt=attempt,
        write=lambda data: write_bytes(re.sub(rb"(?m)^(?=.)", f"{index}".encode(), data)),
        say=lambda text: say(f"{index}: {text}"),
    )


def _ask_to_detach(interrupts: Interrupts) -> bool:
    """False also for another Ctrl-C instead of an answer."""
    try:
        wake = open_signal_fd(signal.SIGINT, signal.SIGTERM)  # input() can miss a Ctrl-C just before it waits
        while not interrupts.count:
            click.echo("\nThe run has not ended. [d]etach or [c]ancel? [d]: ", err=True, nl=False)
            readable, _, _ = select.select([sys.stdin, wake], [], [])
            answer = "c" if wake in readable else sys.stdin.readline().strip().lower() or "d"
            if answer in ("d", "detach", "c", "cancel"):
                return answer.startswith("d")
        return False
    finally:
        interrupts.clear()
        interrupts.listen()


def _report_new_ends(followers: Sequence[Follower], codes: dict[str, int]) -> None:
    for follower in followers:
        if follower.end is not None and follower.run_dir.run_id not in codes:
            codes[follower.run_dir.run_id] = _report_end(follower, follower.end)


def _report_end(follower: Follower, status: RunStatus) -> int:
    run_dir = follower.run_dir
    for remark in status.remarks:
        if remark not in follower.warnings:
            say(f"warning: {remark}")
    if status.state is JobState.SUCCEEDED:
        say(f"{run_dir.run_id} succeeded")
    else:
        print_verdict(format_verdict(run_dir, status), err=True)
    return NO_VERDICT if status.exit_code is None else status.exit_code
