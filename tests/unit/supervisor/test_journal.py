"""A fault is written as an event for later attempts and as error.json for the verdict."""

import json

import pytest

from echelon.diagnosis.causes import Cause
from echelon.diagnosis.death_evidence import DeathEvidence
from echelon.diagnosis.history import Failure
from echelon.run_dir import RunDir
from echelon.supervisor.journal import Journal
from echelon.supervisor.state import Ending, Outcome, ReportFault
from echelon.wire.faults import Fault
from echelon.wire.messages import Exit

FAULT = Fault(
    sentence="rank 1 on n1 raised ValueError: x",
    exit=Exit(rank=1, host="n1", code=1, time=1.0, evidence=DeathEvidence(code=1, output=("last",))),
    failure=Failure(cause=Cause.EXCEPTION, signature="ValueError: x", step=7, host="n1"),
    cause="exception",
    details=("one",),
    hint="echelon resume {run}",
    rule="same exception",
    change="correct it, then echelon resume {run}",
)


@pytest.fixture
def run_dir(tmp_path):
    run_dir = RunDir(tmp_path / "gpt-1")
    run_dir.attempt(0).path.mkdir(parents=True)
    return run_dir


def last_event(run_dir):
    return json.loads(run_dir.events.read_text().splitlines()[-1])


def test_the_fault_event_has_the_failure_and_the_rule(run_dir):
    Journal(run_dir, 0).fault(ReportFault(2, FAULT, 3, step=9))
    event = last_event(run_dir)
    del event["time"]
    assert event == {
        "kind": "fault",
        "attempt": 0,
        "generation": 2,
        "fault": "rank 1 on n1 raised ValueError: x",
        "restarts_left": 3,
        "step": 7,
        "cause": "exception",
        "signature": "ValueError: x",
        "host": "n1",
        "rule": "same exception",
    }


@pytest.mark.parametrize(
    ("fault", "cause"), [(Fault(sentence="hung", cause="hang_x"), "hang_x"), (Fault(sentence="a"), None)]
)
def test_fault_without_a_death_has_the_step_of_the_run(run_dir, fault, cause):
    Journal(run_dir, 0).fault(ReportFault(2, fault, 3, step=9))
    event = last_event(run_dir)
    assert (event["step"], event.get("cause"), "signature" in event) == (9, cause, False)


def test_error_json_has_rule_and_change(run_dir):
    Journal(run_dir, 0).fault(ReportFault(2, FAULT, 3))
    error = json.loads(run_dir.attempt(0).error.read_text())
    assert (error["cause"], error["rule"], error["details"]) == ("exception", "same exception", ["one"])
    assert error["hint"] == "echelon resume gpt-1"
    assert error["change"] == "correct it, then echelon resume gpt-1"
    assert error["evidence"]["output"] == ["last"]


def test_the_end_of_the_attempt_keeps_the_rule(run_dir):
    journal = Journal(run_dir, 0)
    journal.finish(Outcome(ending=Ending.FAILED, exit_code=1, reason="r", fault=FAULT))
    assert json.loads(run_dir.attempt(0).error.read_text())["rule"] == "same exception"
