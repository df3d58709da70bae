"""How a run is doing, from its directory and its scheduler's word."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echelon.errors import SchedulerError
from echelon.events import Event, Kind, read_events
from echelon.node.lease import is_held
from echelon.observe.weigh import Signs, Unheard, weigh
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.states import JobState, JobStatus

HANDING_OVER_SECONDS = 150.0  # longer than a scheduler is waited for
ENDINGS = {
    "succeeded": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
}


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    run_id: str
    path: str
    state: JobState
    reason: str = ""
    scheduler: str = "local"
    native: str = ""
    """The scheduler's own word, and its own id."""
    native_id: str = ""
    expected_start: float | None = None
    """When the scheduler thinks that a queued run will start."""
    exit_code: int | None = None
    attempt: int = 0
    generation: int = 0
    step: int | None = None
    nodes: int = 1
    procs_per_node: int = 1
    submitted: float | None = None
    ended: float | None = None
    fault: str | None = None
    """What the run failed of."""
    last_fault: str | None = None
    """The newest fault, whether or not the run recovered from it."""
    hint: str | None = None
    remarks: tuple[str, ...] = ()


def statuses(run_dirs: Sequence[RunDir]) -> list[RunStatus]:
    """One question to each scheduler for all of its runs, and none about those that tell of their own end."""
    jobs = [run.read_description().get("job", {}) for run in run_dirs]
    stories = [tell(list(read_events(run.events))) for run in run_dirs]
    now = time.time()
    open_ones = [index for index, told in enumerate(stories) if not told["state"].ended]
    handed_over = {index for index in open_ones if run_dirs[index].read_native_id()}  # as of before the question
    answers = _answers({index: run_dirs[index] for index in open_ones}, jobs)
    for index in open_ones:  # read once more, after the question: an end in between is then seen
        run = run_dirs[index]
        events = list(read_events(run.events))
        told = tell(events)
        signs = Signs(
            lease_held=is_held(run.lease),
            cancel_asked=run.cancel_mark.exists(),
            exit_code=run.attempt(told.get("attempt", 0)).read_exit_code(),
        )
        answer = answers[index]
        if answer is None and index not in handed_over:
            answer = _handing_over(run, events, now)
        stories[index] = weigh(told, answer, signs)
    return [
        _status(run, job, told, answers.get(index))
        for index, (run, job, told) in enumerate(zip(run_dirs, jobs, stories, strict=True))
    ]


def _handing_over(run_dir: RunDir, events: Sequence[Event], now: float) -> JobStatus | None:
    """Between the first file of an attempt and the scheduler's id for it, somebody is just submitting it."""
    if events and events[-1].kind is not Kind.SUBMITTED:
        return None
    began = events[-1].time if events else run_dir.path.stat().st_mtime
    recent = abs(now - began) < HANDING_OVER_SECONDS  # two hosts, two clocks
    return JobStatus(state=JobState.QUEUED, reason="being submitted") if recent else None


def status_of(run_dir: RunDir) -> RunStatus:
    return statuses([run_dir])[0]


def _answers(runs: Mapping[int, RunDir], jobs: Sequence[Mapping[str, Any]]) -> dict[int, JobStatus | Unheard | None]:
    by_scheduler: dict[str, list[int]] = {}
    for index in runs:
        by_scheduler.setdefault(jobs[index].get("scheduler", "local"), []).append(index)
    answers: dict[int, JobStatus | Unheard | None] = {}
    for name, indices in by_scheduler.items():
        replies: Sequence[JobStatus | Unheard | None]
        try:
            replies = member("scheduler", name).query([runs[index] for index in indices])
        except SchedulerError as error:
            replies = [Unheard(why=error.what)] * len(indices)
        answers.update(zip(indices, replies, strict=True))
    return answers


def _status(
    run_dir: RunDir, job: Mapping[str, Any], told: dict[str, Any], answer: JobStatus | Unheard | None
) -> RunStatus:
    if told.get("hint"):
        told = {**told, "hint": told["hint"].replace("{run}", run_dir.run_id)}
    resources = job.get("resources", {})
    return RunStatus(
        run_id=run_dir.run_id,
        path=str(run_dir.path),
        scheduler=job.get("scheduler", "local"),
        native=answer.native if isinstance(answer, JobStatus) else "",
        native_id=run_dir.read_native_id(),
        nodes=resources.get("nodes", 1),
        procs_per_node=resources.get("procs_per_node", 1),
        **told,
    )


def tell(events: Sequence[Event]) -> dict[str, Any]:
    """The story so far, read front to back. Pure."""
    told: dict[str, Any] = {"state": JobState.QUEUED}
    for event in events:
        told["attempt"] = event.attempt
        _TELLERS.get(event.kind, _untold)(told, event)
    return told


def _untold(_told: dict[str, Any], _event: Event) -> None:
    pass


def _submitted(told: dict[str, Any], event: Event) -> None:
    told.setdefault("submitted", event.time)
    told.update(_ANEW, state=JobState.QUEUED)


def _started(told: dict[str, Any], _: Event) -> None:
    """Whatever the last attempt came to: one that a requeue has started is alive."""
    told.update(_ANEW, state=JobState.STARTING, generation=0)


_ANEW = {"exit_code": None, "reason": "", "fault": None, "hint": None, "ended": None}


def _generation(told: dict[str, Any], event: Event) -> None:
    told.update(state=JobState.RUNNING, generation=event.fields.get("generation", 0))


def _progress(told: dict[str, Any], event: Event) -> None:
    told["step"] = event.fields.get("step")


def _fault(told: dict[str, Any], event: Event) -> None:
    told["last_fault"] = event.fields.get("fault")


def _requeued(told: dict[str, Any], event: Event) -> None:
    told.update(state=JobState.REQUEUED, reason=event.fields.get("reason", ""))


def _finished(told: dict[str, Any], event: Event) -> None:
    told.update(
        state=ENDINGS.get(str(event.fields.get("outcome")), JobState.FAILED),
        exit_code=event.fields.get("exit_code"),
        reason=str(event.fields.get("reason", "")),
        hint=event.fields.get("hint"),
        ended=event.time,
        remarks=tuple(map(str, _listed(event.fields.get("remarks")))),
    )
    if event.fields.get("fault"):
        told["fault"] = event.fields["fault"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_TELLERS = {
    Kind.SUBMITTED: _submitted,
    Kind.STARTED: _started,
    Kind.GENERATION: _generation,
    Kind.PROGRESS: _progress,
    Kind.FAULT: _fault,
    Kind.REQUEUED: _requeued,
    Kind.FINISHED: _finished,
}


def read_verdict(run_dir: RunDir, attempt: int) -> dict[str, Any] | None:
    try:
        data = json.loads(run_dir.attempt(attempt).error.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
