"""What a run's own events tell, weighed against its scheduler's word. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from echelon.exit_codes import REQUEUE
from echelon.states import JobState, JobStatus

TRY = "echelon resume {run} starts its next attempt; job.out in its folder has its last words"


@dataclass(frozen=True, kw_only=True)
class Unheard:
    """The scheduler could not be asked."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What else shows in the run's folder."""

    lease_held: bool = False
    cancel_asked: bool = False
    exit_code: int | None = None
    """What the attempt wrote down last of all, though no event tells of it."""


def weigh(told: dict[str, Any], answer: JobStatus | Unheard | None, signs: Signs) -> dict[str, Any]:
    """The events have the last word on an end; on anything else the scheduler has, for it knows of requeues."""
    if told["state"].ended:
        return told
    if signs.exit_code is not None and signs.exit_code != REQUEUE and (answer is None or answer_ended(answer)):
        return _by_its_code(told, signs)
    if isinstance(answer, Unheard):
        return {**told, "reason": f"as last heard; {answer.why}"}
    if answer is None:
        return told if signs.lease_held else _gone(told, signs)
    if answer.state.ended:
        return _ended_unrecorded(told, answer, signs)
    if answer.state in (JobState.QUEUED, JobState.REQUEUED):
        state = JobState.QUEUED if told["state"] is JobState.QUEUED else JobState.REQUEUED
        return {**told, "state": state, "reason": answer.reason, "expected_start": answer.expected_start}
    state = JobState.STARTING if told["state"] is JobState.QUEUED else told["state"]
    return {**told, "state": state, "reason": answer.reason or told.get("reason", "")}


def answer_ended(answer: JobStatus | Unheard) -> bool:
    return isinstance(answer, JobStatus) and answer.state.ended


def _by_its_code(told: dict[str, Any], signs: Signs) -> dict[str, Any]:
    code = signs.exit_code
    if code != 0 and signs.cancel_asked:
        return _cancelled(told, code)
    state = JobState.SUCCEEDED if code == 0 else JobState.FAILED
    return {**told, "state": state, "exit_code": code, "reason": f"it left the exit code {code}"}


def _gone(told: dict[str, Any], signs: Signs) -> dict[str, Any]:
    if signs.cancel_asked:
        return _cancelled(told)
    return {
        **told,
        "state": JobState.LOST,
        "reason": "its supervisor is gone and left no exit code",
        "hint": TRY,
    }


def _ended_unrecorded(told: dict[str, Any], answer: JobStatus, signs: Signs) -> dict[str, Any]:
    """Over by the scheduler's word alone: the supervisor never started, or was not given time for a last word."""
    if answer.state is JobState.CANCELLED or signs.cancel_asked:
        return _cancelled(told, answer.exit_code)
    if answer.state is JobState.SUCCEEDED:
        reason = f"the scheduler says {answer.native}, but the run left no exit code"
        return {**told, "state": JobState.LOST, "reason": reason, "hint": TRY}
    reason = answer.reason or f"the scheduler says {answer.native}"
    return {**told, "state": answer.state, "reason": reason, "exit_code": answer.exit_code, "hint": TRY}


def _cancelled(told: dict[str, Any], exit_code: int | None = None) -> dict[str, Any]:
    before = " before it started" if told["state"] is JobState.QUEUED else ""
    return {**told, "state": JobState.CANCELLED, "reason": f"cancelled{before}", "exit_code": exit_code}
