"""PBS's letters, comments and exit codes, and what they mean to the person who waits."""

from __future__ import annotations

import re
import signal

from echelon.exit_codes import TIME_LIMIT
from echelon.states import JobState

STATES = {
    "Q": JobState.QUEUED,
    "H": JobState.QUEUED,
    "W": JobState.QUEUED,
    "T": JobState.QUEUED,
    "B": JobState.RUNNING,
    "R": JobState.RUNNING,
    "E": JobState.RUNNING,
    "S": JobState.RUNNING,
    "U": JobState.RUNNING,
}
"""Of a job that is not over: F, X and M are, and how is for its exit code to say."""
OVER = ("F", "X", "M")

STATE_SENTENCES = {
    "W": "it may not start before the time it asked for",
    "T": "on its way to another queue",
    "E": "ending: PBS is moving its output and cleaning up",
    "S": "suspended",
    "U": "suspended, because somebody uses its machine",
    "M": "moved to another server",
}
HOLDS = {"u": "held by its owner; qrls lets it go", "o": "held by an operator", "s": "held by PBS or an administrator"}

WALLTIME = -29
FAILURES = {
    -1: "it could not be started on its hosts",
    -2: "it could not be started on its hosts",
    -3: "it could not be started on its hosts, and PBS will try again",
    -4: "its host was restarted while it ran",
    -5: "its host was restarted while it ran",
    -6: "its host was restarted while it ran",
    -8: "its output file cannot be written",
    -11: "it was put back into the queue",
    -12: "it was put back into the queue",
    -24: "it used more CPUs than it asked for",
    -25: "it used more CPUs than it asked for",
    -26: "it used more virtual memory than it asked for",
    -27: "it used more memory than it asked for",
    -28: "it used more CPU time than it asked for",
    WALLTIME: "its time limit was reached",
}
ASKED_TO_END = 256 + signal.SIGTERM

_SHORTAGE = re.compile(r"Insufficient amount of (\w+ )?resource:? ?(\S+)(.*)")
_NEWS = re.compile(r"Job (run|was) ")


def exit_code_of(status: int) -> int:
    """Exit_status as shells say it: a signal is 128 and its number."""
    if status == WALLTIME:
        return TIME_LIMIT
    if status < 0:
        return 1
    return 128 + (status - 256) if 256 < status < 256 + 128 else min(status, 255)


def ending(status: int | None) -> tuple[JobState, str, int | None]:
    """How a job ended that left this Exit_status: none is there of one that never ran, or was deleted in the queue."""
    if status is None:
        return JobState.CANCELLED, "deleted before it ended", 128 + signal.SIGTERM
    code = exit_code_of(status)
    if status == 0:
        return JobState.SUCCEEDED, "", 0
    if status == ASKED_TO_END:
        return JobState.CANCELLED, "deleted", code
    if status in FAILURES:
        return JobState.FAILED, FAILURES[status], code
    if status < 0:
        return JobState.FAILED, f"PBS ended it (Exit_status {status})", code
    return JobState.FAILED, f"{signal_word(code - 128)} ended it" if status > 256 else f"exit code {code}", code


def signal_word(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def comment_sentence(comment: str) -> str:
    """The scheduler's comment on a job that waits; one that only says that it ran is no reason."""
    kind, colon, rest = comment.partition(":")
    rest = rest.strip()
    if kind in ("Can Never Run", "Not Running") and colon:
        sentence = _shortage(rest) or rest
        return f"it can never run as it is: {sentence}" if kind == "Can Never Run" else sentence
    return "" if _NEWS.match(comment) else comment


def _shortage(text: str) -> str | None:
    match = _SHORTAGE.match(text)
    if match is None:
        return None
    where, what, more = (match.group(1) or "").strip(), match.group(2), match.group(3).strip()
    return " ".join(filter(None, (f"not enough {what}", f"in the {where}" if where else "", more)))


def hold_sentence(holds: str, depends: str) -> str:
    if depends:
        return f"waiting for a job it depends on ({depends})"
    return "; ".join(HOLDS[letter] for letter in holds if letter in HOLDS) or "held"
