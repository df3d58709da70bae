"""Translates PBS's state letters, comments and exit codes to states of echelon and sentences for users."""

from __future__ import annotations

import re
import signal

from echelon.errors import TIME_LIMIT
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
"""States of jobs that have not ended. F, X and M are final; then Exit_status decides the state."""
FINAL_STATES = ("F", "X", "M")
STATE_SENTENCES = {
    "W": "waiting for its requested start time",
    "T": "moving to another queue",
    "E": "ending: PBS is moving its output and cleaning up",
    "S": "suspended",
    "U": "suspended while a user works at its workstation",
    "M": "moved to another server",
}
HOLDS = {
    "u": "held by its owner; qrls JOB releases it",
    "o": "held by an operator",
    "s": "held by PBS or an administrator",
}
WALLTIME = -29
RERUNS = {
    -11: "PBS reruns the job (qrerun or preemption)",
    -14: "another host of the job failed",
    -20: "the first host of the job failed",
}
FAILURES = {
    -1: "it could not be started on its hosts",
    -2: "it could not be started on its hosts",
    -3: "it could not be started on its hosts, and PBS will try again",
    -4: "its host was restarted while it ran",
    -5: "its host was restarted while it ran",
    -6: "its host was restarted while it ran",
    -8: "its output file cannot be written",
    **{status: f"{cause}; it was queued again and has not run since" for status, cause in RERUNS.items()},
    -12: "it was requeued",
    -24: "it used more CPUs than requested",
    -25: "it used more CPUs than requested",
    -26: "it used more virtual memory than requested",
    -27: "it used more memory than requested",
    -28: "it used more CPU time than requested",
    WALLTIME: "its time limit was reached",
}
ASKED_TO_END = 256 + signal.SIGTERM
_SHORTAGE = re.compile(r"Insufficient amount of (\w+ )?resource:? ?(\S+)(.*)")
_NEWS = re.compile(r"Job (run|was) ")


def exit_code_of(status: int) -> int:
    """Converts Exit_status to a shell's exit code: a signal is 128 plus its number."""
    if status == WALLTIME:
        return TIME_LIMIT
    if status < 0:
        return 1
    return 128 + (status - 256) if 256 < status < 256 + 128 else min(status, 255)


def end_status(status: int | None) -> tuple[JobState, str, int | None]:
    """State, sentence and exit code of an ended job. A job that never ran or was deleted in the queue has no
    Exit_status."""
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


def rerun_sentence(status: str) -> str:
    """`status` is Exit_status, which is empty while the script is still running."""
    cause = next((cause for code, cause in RERUNS.items() if str(code) == status), RERUNS[-11])
    return f"{cause}; it is being queued again"


def signal_word(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def comment_sentence(comment: str) -> str:
    """The scheduler's comment on a queued job as a sentence. Empty for a comment about an earlier start."""
    kind, colon, rest = comment.partition(":")
    rest = rest.strip()
    if kind in ("Can Never Run", "Not Running") and colon:
        sentence = _shortage_sentence(rest) or rest
        return f"it can never run: {sentence}" if kind == "Can Never Run" else sentence
    return "" if _NEWS.match(comment) else comment


def _shortage_sentence(text: str) -> str | None:
    match = _SHORTAGE.match(text)
    if match is None:
        return None
    where, what, more = (match.group(1) or "").strip(), match.group(2), match.group(3).strip()
    return " ".join(filter(None, (f"not enough {what}", f"in the {where}" if where else "", more)))


def hold_sentence(holds: str, depends: str) -> str:
    if depends:
        return f"waiting for a job it depends on ({depends})"
    return "; ".join(HOLDS[letter] for letter in holds if letter in HOLDS) or "held"
