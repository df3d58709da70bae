"""The failures of all attempts are read from the fault events of a run."""

import json

import pytest

from echelon.diagnosis.causes import Cause
from echelon.diagnosis.history import Attempt, Failure, History, failure_fields, history_of
from echelon.events import Event, Kind, parse_event

FULL = Failure(cause=Cause.EXCEPTION, signature="ValueError: x", step=7, restored=5, restored_name="step-5", host="n1")
SHORT = Failure(cause=Cause.AGENT_DIED)


def fault(attempt=0, **fields):
    return Event(kind=Kind.FAULT, time=1.0, attempt=attempt, fields=fields)


@pytest.mark.parametrize("failure", [FULL, SHORT])
def test_failure_is_unchanged_by_the_event(failure):
    event = parse_event(fault(**failure_fields(failure)).line())
    assert history_of([event]).failures == (failure,)


def test_a_hang_is_read_by_the_failure_beside_its_kind():
    event = fault(cause="hang_mismatch", failure="hang in the script", signature="mismatch: a.py:7", step=3)
    hang = Failure(cause=Cause.HANG_IN_SCRIPT, signature="mismatch: a.py:7", step=3)
    assert history_of([event]).failures == (hang,)


def test_fields_without_a_value_are_left_out():
    assert failure_fields(SHORT) == {"cause": "the agent died"}
    json.dumps(failure_fields(FULL))


def test_failures_are_grouped_by_attempt():
    events = [fault(0, cause="exception"), fault(0, cause="aborted"), fault(2, cause="exception")]
    exception, aborted = Failure(cause=Cause.EXCEPTION), Failure(cause=Cause.ABORTED)
    attempts = (Attempt(failures=(exception, aborted)), Attempt(failures=(exception,)))
    assert history_of(events) == History(attempts=attempts)


@pytest.mark.parametrize(
    "event",
    [
        fault(),
        fault(cause="hang_missing_rank"),
        fault(cause=["exception"]),
        fault(cause=None),
        Event(kind=Kind.FINISHED, time=1.0, fields={"cause": "exception"}),
    ],
)
def test_other_events_are_not_failures(event):
    assert history_of([event]) == History()


def test_a_step_of_another_type_is_none():
    assert history_of([fault(cause="exception", step="7", host=3)]).failures == (
        Failure(cause=Cause.EXCEPTION, host="3"),
    )
