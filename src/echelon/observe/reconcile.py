"""Combines what the events of a run say with what the scheduler says. Pure."""

from __future__ import annotations

from typing import Any

from echelon.errors import REQUEUE
from echelon.record import record
from echelon.states import JobState, JobStatus

RESUME_HINT = "echelon resume {run} to start the next attempt; job.out in its folder has its last output"


@record
class QueryFailed:
    """The scheduler could not be queried."""

    why: str


@record
class RunEvidence:
    """Other evidence in the run's directory."""

    lease_held: bool = False
    cancel_asked: bool = False
    exit_code: int | None = None
    """The exit code that the attempt wrote, even if its last event is missing."""


def reconcile(
    recorded: dict[str, Any], answer: JobStatus | QueryFailed | None, evidence: RunEvidence
) -> dict[str, Any]:
    """An end in the events takes precedence. Otherwise the scheduler does, because it knows about requeues."""
    if recorded["state"].ended:
        return recorded
    if evidence.exit_code is not None and evidence.exit_code != REQUEUE and (answer is None or answer_ended(answer)):
        return _ended_by_exit_code(recorded, evidence)
    if isinstance(answer, QueryFailed):
        return {**recorded, "reason": f"last known state ({answer.why})"}
    if answer is None:
        return recorded if evidence.lease_held else _job_unknown(recorded, evidence)
    if answer.state.ended:
        return _ended_by_scheduler(recorded, answer, evidence)
    if answer.state in (JobState.QUEUED, JobState.REQUEUED):
        state = JobState.QUEUED if recorded["state"] is JobState.QUEUED else JobState.REQUEUED
        return {**recorded, "state": state, "reason": answer.reason, "expected_start": answer.expected_start}
    state = JobState.STARTING if recorded["state"] is JobState.QUEUED else recorded["state"]
    return {**recorded, "state": state, "reason": answer.reason or recorded.get("reason", "")}


def answer_ended(answer: JobStatus | QueryFailed) -> bool:
    return isinstance(answer, JobStatus) and answer.state.ended


def _ended_by_exit_code(recorded: dict[str, Any], evidence: RunEvidence) -> dict[str, Any]:
    code = evidence.exit_code
    if code != 0 and evidence.cancel_asked:
        return _as_cancelled(recorded, code)
    state = JobState.SUCCEEDED if code == 0 else JobState.FAILED
    return {**recorded, "state": state, "exit_code": code, "reason": f"exit code {code}"}


def _job_unknown(recorded: dict[str, Any], evidence: RunEvidence) -> dict[str, Any]:
    if evidence.cancel_asked:
        return _as_cancelled(recorded)
    if recorded["state"] is JobState.QUEUED:
        reason = "the job never started, and the scheduler has no record of it"
    else:
        reason = "its supervisor ended without an exit code"
    return {**recorded, "state": JobState.LOST, "reason": reason, "hint": RESUME_HINT}


def _ended_by_scheduler(recorded: dict[str, Any], answer: JobStatus, evidence: RunEvidence) -> dict[str, Any]:
    """Only the scheduler reports the end: the supervisor never started, or was killed before it could record it."""
    if answer.state is JobState.CANCELLED or evidence.cancel_asked:
        return _as_cancelled(recorded, answer.exit_code)
    if answer.state is JobState.SUCCEEDED:
        reason = f"the scheduler reports {answer.native}, but the run ended without an exit code"
        return {**recorded, "state": JobState.LOST, "reason": reason, "hint": RESUME_HINT}
    reason = answer.reason or f"the scheduler reports {answer.native}"
    return {**recorded, "state": answer.state, "reason": reason, "exit_code": answer.exit_code, "hint": RESUME_HINT}


def _as_cancelled(recorded: dict[str, Any], exit_code: int | None = None) -> dict[str, Any]:
    before = " before it started" if recorded["state"] is JobState.QUEUED else ""
    return {**recorded, "state": JobState.CANCELLED, "reason": f"cancelled{before}", "exit_code": exit_code}
