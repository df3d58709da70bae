"""explain_death: the cause of a rank's death in one sentence, with a hint. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from echelon.diagnosis.causes import CORRECT, RESTART, Cause, Death, death
from echelon.diagnosis.crashes import explain_crash
from echelon.diagnosis.death_evidence import (
    DeathEvidence,
    DiskFacts,
    Limits,
    MemoryFacts,
    Parent,
    SharedMemory,
    clean_evidence,
    path_in_message,
)
from echelon.diagnosis.exceptions import explain_exception, first_line, signature
from echelon.diagnosis.kills import explain_end, explain_kill, explain_parent
from echelon.errors import CANNOT_EXECUTE, NOT_FOUND

__all__ = [
    "Cause",
    "Death",
    "DeathEvidence",
    "DiskFacts",
    "Limits",
    "MemoryFacts",
    "Parent",
    "SharedMemory",
    "explain_death",
    "path_in_message",
]

USAGE = 2
"""The exit code of argparse and of most commands for wrong arguments."""
BY_CODE = {NOT_FOUND: Cause.NOT_FOUND, CANNOT_EXECUTE: Cause.NOT_EXECUTABLE}
NO_OUTPUT = f"print the reason before the script exits; {RESTART}"
LAST_LINES = 10
TELLING_LINES = 3
"""How many of the last lines may name the cause of an exit code."""
MOST_TEXT_LINES = 10
TRACEBACK_HEAD = "Traceback (most recent call last):"
_PREFIX = re.compile(r"^\[(rank|default)\d+\]: ?")
"""torch puts it before each line of a traceback."""
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(: (?P<message>.*))?$")
_ARGUMENT_ERROR = re.compile(r"^\S+: error: |^Error: ")


def explain_death(evidence: DeathEvidence, rank: int, host: str) -> Death:
    """Pure. The facts that name a cause for certain come first."""
    evidence = clean_evidence(evidence)
    evidence = evidence if evidence.error_type or evidence.exit_text else with_printed_error(evidence)
    who = f"rank {rank} on {host}"
    return (
        explain_parent(evidence, who, host)
        or explain_exception(evidence, who)
        or explain_exit_text(evidence, who)
        or explain_kill(evidence, who)
        or explain_crash(evidence, who)
        or explain_end(evidence, who)
        or explain_exit_code(evidence, who)
    )


def with_printed_error(evidence: DeathEvidence) -> DeathEvidence:
    """A copy with the exception at the end of the output. A rank that is no script of ours leaves no other record."""
    if evidence.code <= 0:
        return evidence  # it ended by a signal: an exception in its output may be one that it caught
    lines = [_PREFIX.sub("", line) for line in evidence.output]
    heads = [index for index, line in enumerate(lines) if line.strip() == TRACEBACK_HEAD]
    if not heads:
        return evidence
    end = next((i for i in range(heads[-1] + 1, len(lines)) if lines[i] and not lines[i].startswith(" ")), None)
    raised = _RAISED.match(lines[end]) if end is not None else None
    if raised is None or end is None:
        return evidence
    message = "\n".join((raised["message"] or "", *lines[end + 1 :]))
    text = "\n".join(lines[heads[-1] : end + 1])
    return replace(evidence, error_type=raised["type"], error_message=message.strip(), traceback=text)


def explain_exit_text(evidence: DeathEvidence, who: str) -> Death | None:
    """For sys.exit("text"). A text about NaN or a full disk gets the hint for that."""
    if not evidence.exit_text:
        return None
    lines = tuple(evidence.exit_text.strip().splitlines())[1:MOST_TEXT_LINES]
    named = explain_exception(replace(evidence, error_type="SystemExit", error_message=evidence.exit_text), who)
    cause = named.cause if named is not None and named.cause is not Cause.EXCEPTION else Cause.EXIT_TEXT
    sentence = f"{who} exited: {first_line(evidence.exit_text)}"
    hint = named.hint if named is not None and named.hint != CORRECT else ""
    return death(cause, sentence, hint=hint, details=lines, signature=signature("SystemExit", evidence.exit_text))


def explain_exit_code(evidence: DeathEvidence, who: str) -> Death:
    """For an exit code without an exception. The rank's last lines are the only explanation."""
    sentence = f"{who} exited with code {evidence.code}"
    details = last_lines(evidence.output)
    usage = _usage_error(evidence.output) if evidence.code == USAGE else ""
    if usage:
        return death(Cause.USAGE, f"{sentence}: {usage}", details=details)
    named = None if evidence.code in BY_CODE else _named_by_output(evidence, who)
    cause = named.cause if named is not None else BY_CODE.get(evidence.code, Cause.EXIT_CODE)
    is_explained = evidence.output or evidence.code in BY_CODE
    hint = named.hint if named is not None else ("" if is_explained else NO_OUTPUT)
    mark = signature(f"exit code {evidence.code}", details[-1] if evidence.output else "")
    return death(cause, sentence, hint=hint, details=details, signature=mark)


def last_lines(output: tuple[str, ...]) -> tuple[str, ...]:
    lines = [line for line in output if line.strip()][-LAST_LINES:]
    return tuple(lines) or ("no output",)


def _usage_error(output: tuple[str, ...]) -> str:
    """The error line of argparse or click; empty if the output has none."""
    return next((first_line(line) for line in reversed(output) if _ARGUMENT_ERROR.match(line)), "")


def _named_by_output(evidence: DeathEvidence, who: str) -> Death | None:
    """The cause that one of the last lines names, such as a loss that is nan."""
    for line in reversed(last_lines(evidence.output)[-TELLING_LINES:]):
        named = explain_exception(replace(evidence, error_type="exit", error_message=line), who)
        if named is not None and named.cause is not Cause.EXCEPTION:
            return named
    return None
