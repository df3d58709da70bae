"""The status of a run, from its directory and its scheduler, with the ranks that slow the others down."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from echelon.backends import DEFAULT, backend
from echelon.errors import SchedulerError
from echelon.events import Event, Kind, read_events
from echelon.lease import is_held
from echelon.observe.reconcile import QueryFailed, RunEvidence, reconcile
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.states import JobState, JobStatus
from echelon.untrusted import parse_json, read_regular

SUBMITTING_SECONDS = 150.0  # longer than the timeout of a scheduler's command
STATE_BY_OUTCOME = {
    "succeeded": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
}
NEW_RANKS = (Kind.SUBMITTED, Kind.STARTED, Kind.GENERATION)


@record
class RunStatus:
    run_id: str
    path: str
    state: JobState
    reason: str = ""
    scheduler: str = DEFAULT
    native: str = ""
    """The scheduler's own name of the state."""
    native_id: str = ""
    """The scheduler's id of the job."""
    expected_start: float | None = None
    """When the scheduler expects to start a queued run, in seconds since the epoch."""
    exit_code: int | None = None
    attempt: int = 0
    generation: int = 0
    step: int | None = None
    """The last trained step."""
    saved: int | None = None
    """The step of the newest checkpoint."""
    nodes: int = 1
    procs_per_node: int = 1
    submitted: float | None = None
    ended: float | None = None
    fault: str | None = None
    """The fault that ended the run."""
    last_fault: str | None = None
    """The newest fault, whether or not the run recovered from it."""
    slow: tuple[str, ...] = ()
    """Ranks that slow the others down, one sentence each."""
    hint: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """The reason to show: the fault that ended the run, if any."""
        return self.fault or self.reason


def statuses(run_dirs: Sequence[RunDir]) -> list[RunStatus]:
    """Queries each scheduler once for all of its runs, except for runs whose events contain their end."""
    jobs = [run.read_description().get("job", {}) for run in run_dirs]
    all_fields = [apply_events(list(read_events(run.events))) for run in run_dirs]
    now = time.time()
    open_ones = [index for index, fields in enumerate(all_fields) if not fields["state"].ended]
    handed_over = {index for index in open_ones if run_dirs[index].read_native_id()}  # read before the query
    answers = _query_schedulers({index: run_dirs[index] for index in open_ones}, jobs)
    for index in open_ones:  # read again after the query, to include an end in between
        run = run_dirs[index]
        events = list(read_events(run.events))
        fields = apply_events(events)
        evidence = RunEvidence(
            lease_held=is_held(run.lease),
            cancel_asked=run.cancel_mark.exists(),
            exit_code=run.attempt(fields.get("attempt", 0)).read_exit_code(),
        )
        answer = answers[index]
        if answer is None and index not in handed_over:
            answer = _submitting_status(run, events, now)
        all_fields[index] = reconcile(fields, answer, evidence)
    return [
        _run_status(run, job, fields, answers.get(index))
        for index, (run, job, fields) in enumerate(zip(run_dirs, jobs, all_fields, strict=True))
    ]


def _submitting_status(run_dir: RunDir, events: Sequence[Event], now: float) -> JobStatus | None:
    """QUEUED for an attempt that is being submitted, otherwise None.

    Submission writes the attempt's first file some time before it knows the scheduler's id.
    """
    if events and events[-1].kind is not Kind.SUBMITTED:
        return None
    began = events[-1].time if events else run_dir.path.stat().st_mtime
    recent = abs(now - began) < SUBMITTING_SECONDS  # abs: the clocks of two hosts differ
    return JobStatus(state=JobState.QUEUED, reason="being submitted") if recent else None


def status_of(run_dir: RunDir) -> RunStatus:
    return statuses([run_dir])[0]


def _query_schedulers(
    runs: Mapping[int, RunDir], jobs: Sequence[Mapping[str, Any]]
) -> dict[int, JobStatus | QueryFailed | None]:
    by_scheduler: dict[str, list[int]] = {}
    for index in runs:
        by_scheduler.setdefault(jobs[index].get("scheduler", DEFAULT), []).append(index)
    answers: dict[int, JobStatus | QueryFailed | None] = {}
    for name, indices in by_scheduler.items():
        replies: Sequence[JobStatus | QueryFailed | None]
        try:
            replies = backend(name).query([runs[index] for index in indices])
        except SchedulerError as error:
            replies = [QueryFailed(why=error.what)] * len(indices)
        answers.update(zip(indices, replies, strict=True))
    return answers


def _run_status(
    run_dir: RunDir, job: Mapping[str, Any], fields: dict[str, Any], answer: JobStatus | QueryFailed | None
) -> RunStatus:
    if fields.get("hint"):
        fields = {**fields, "hint": fields["hint"].replace("{run}", run_dir.run_id)}
    resources = job.get("resources", {})
    return RunStatus(
        run_id=run_dir.run_id,
        path=str(run_dir.path),
        scheduler=job.get("scheduler", DEFAULT),
        native=answer.native if isinstance(answer, JobStatus) else "",
        native_id=run_dir.read_native_id(),
        nodes=resources.get("nodes", 1),
        procs_per_node=resources.get("procs_per_node", 1),
        **fields,
    )


def apply_events(events: Sequence[Event]) -> dict[str, Any]:
    """The fields of RunStatus after these events, applied in order. Pure."""
    fields: dict[str, Any] = {"state": JobState.QUEUED}
    for event in events:
        fields["attempt"] = event.attempt
        _APPLY_BY_KIND.get(event.kind, _ignore_event)(fields, event)
    slow = slow_sentences(events)
    return {**fields, "slow": slow} if slow else fields


def _ignore_event(_fields: dict[str, Any], _event: Event) -> None:
    pass


def _apply_submitted(fields: dict[str, Any], event: Event) -> None:
    fields.setdefault("submitted", event.time)
    fields.update(_NEW_ATTEMPT_FIELDS, state=JobState.QUEUED)


def _apply_started(fields: dict[str, Any], _: Event) -> None:
    """Discards the result of the previous attempt: a requeue has started a new one."""
    fields.update(_NEW_ATTEMPT_FIELDS, state=JobState.STARTING, generation=0)


_NEW_ATTEMPT_FIELDS = {"exit_code": None, "reason": "", "fault": None, "hint": None, "ended": None}


def _apply_generation(fields: dict[str, Any], event: Event) -> None:
    fields.update(state=JobState.RUNNING, generation=event.fields.get("generation", 0))


def _apply_progress(fields: dict[str, Any], event: Event) -> None:
    fields["step"] = event.fields.get("step")


def _apply_checkpoint(fields: dict[str, Any], event: Event) -> None:
    fields["saved"] = event.fields.get("step")


def _apply_final_steps(fields: dict[str, Any], event: Event) -> None:
    fields.update({name: event.fields[name] for name in ("step", "saved") if name in event.fields})


def _apply_fault(fields: dict[str, Any], event: Event) -> None:
    fields["last_fault"] = event.fields.get("fault")
    if event.fields.get("step") is not None:
        fields["step"] = event.fields["step"]


def _apply_requeued(fields: dict[str, Any], event: Event) -> None:
    fields.update(state=JobState.REQUEUED, reason=event.fields.get("reason", ""))
    _apply_final_steps(fields, event)


def _apply_finished(fields: dict[str, Any], event: Event) -> None:
    fields.update(
        state=STATE_BY_OUTCOME.get(str(event.fields.get("outcome")), JobState.FAILED),
        exit_code=event.fields.get("exit_code"),
        reason=str(event.fields.get("reason", "")),
        hint=event.fields.get("hint"),
        ended=event.time,
        remarks=tuple(map(str, _as_list(event.fields.get("remarks")))),
    )
    _apply_final_steps(fields, event)
    if event.fields.get("fault"):
        fields["fault"] = event.fields["fault"]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_APPLY_BY_KIND = {
    Kind.SUBMITTED: _apply_submitted,
    Kind.STARTED: _apply_started,
    Kind.GENERATION: _apply_generation,
    Kind.PROGRESS: _apply_progress,
    Kind.CHECKPOINT: _apply_checkpoint,
    Kind.FAULT: _apply_fault,
    Kind.REQUEUED: _apply_requeued,
    Kind.FINISHED: _apply_finished,
}


def read_verdict(run_dir: RunDir, attempt: int) -> dict[str, Any] | None:
    try:
        data = parse_json(read_regular(run_dir.attempt(attempt).error))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def slow_sentences(events: Iterable[Event]) -> tuple[str, ...]:
    """One sentence for each slowness that has not ended. A new generation starts without any."""
    found: dict[frozenset[int], str] = {}
    for event in events:
        if event.kind in NEW_RANKS:
            found.clear()
        elif event.kind is Kind.SLOW:
            _apply_slow_event(found, event)
    return tuple(found.values())


def _apply_slow_event(found: dict[frozenset[int], str], event: Event) -> None:
    ranks, change = _parse_ranks(event.fields.get("ranks")), event.fields.get("change")
    for known in [known for known in found if change == "ended" and known <= ranks]:
        del found[known]
    if change == "chronic":
        found[ranks] = str(event.fields.get("text"))


def _parse_ranks(value: Any) -> frozenset[int]:
    return frozenset(rank for rank in value if isinstance(rank, int)) if isinstance(value, list) else frozenset()
