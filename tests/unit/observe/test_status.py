"""A run's story, told from its events."""

import os
import time
from dataclasses import replace

import pytest

from echelon.events import Event, Kind
from echelon.job import Job, Script, ScriptKind
from echelon.observe.status import RunStatus, apply_events, read_verdict, status_of
from echelon.run_dir import RunDir
from echelon.states import JobState


def event(kind, time=1.0, attempt=0, **fields):
    return Event(kind=kind, time=time, attempt=attempt, fields=fields)


SUBMITTED = event(Kind.SUBMITTED, time=10.0, scheduler="local")
STARTED = event(Kind.STARTED, time=11.0)
RUNNING = event(Kind.GENERATION, time=12.0, generation=0)
FAULT = event(Kind.FAULT, fault="rank 0 died", restarts_left=1)
FINISHED = event(Kind.FINISHED, time=20.0, outcome="succeeded", exit_code=0, reason="all ranks finished")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], JobState.QUEUED),
        ([SUBMITTED], JobState.QUEUED),
        ([SUBMITTED, STARTED], JobState.STARTING),
        ([SUBMITTED, STARTED, RUNNING], JobState.RUNNING),
        ([SUBMITTED, STARTED, RUNNING, FAULT], JobState.RUNNING),
        ([SUBMITTED, STARTED, RUNNING, event(Kind.REQUEUED, reason="time")], JobState.REQUEUED),
        ([SUBMITTED, STARTED, RUNNING, FINISHED], JobState.SUCCEEDED),
        ([event(Kind.FINISHED, outcome="failed")], JobState.FAILED),
        ([event(Kind.FINISHED, outcome="cancelled")], JobState.CANCELLED),
        ([event(Kind.FINISHED, outcome="a newer word")], JobState.FAILED),
        ([event(Kind.FINISHED)], JobState.FAILED),
    ],
)
def test_last_event_gives_the_state(events, state):
    assert apply_events(events)["state"] is state


def test_finished_event_gives_code_reason_fault_hint_and_time():
    told = apply_events(
        [event(Kind.FINISHED, time=9.0, outcome="failed", exit_code=7, reason="r", fault="f", hint="h")],
    )
    assert {key: told[key] for key in ("exit_code", "reason", "fault", "hint", "ended")} == {
        "exit_code": 7,
        "reason": "r",
        "fault": "f",
        "hint": "h",
        "ended": 9.0,
    }


def test_the_step_of_a_fault_is_the_last_step():
    events = [RUNNING, event(Kind.PROGRESS, step=5), event(Kind.FAULT, fault="rank 0 died", step=8), FAULT]
    assert apply_events(events)["step"] == 8


def test_the_fault_that_ended_a_run_is_its_cause():
    status = RunStatus(run_id="x", path="/x", state=JobState.FAILED, reason="no restarts left")
    assert status.cause == "no restarts left"
    assert replace(status, fault="rank 0 died").cause == "rank 0 died"


def test_the_last_fault_and_step_are_remembered():
    told = apply_events([SUBMITTED, RUNNING, event(Kind.PROGRESS, step=5), event(Kind.PROGRESS, step=9), FAULT])
    assert (told["step"], told["last_fault"]) == (9, "rank 0 died")
    assert told.get("fault") is None, "the run may yet recover from it"


def test_the_first_submission_is_when_the_run_was_submitted():
    told = apply_events([SUBMITTED, event(Kind.SUBMITTED, time=99.0, attempt=1)])
    assert (told["submitted"], told["attempt"]) == (10.0, 1)


def test_resume_clears_the_end_of_the_last_attempt():
    failed = event(Kind.FINISHED, outcome="failed", exit_code=1, reason="bad", fault="f", hint="h")
    told = apply_events([SUBMITTED, failed, event(Kind.SUBMITTED, attempt=1)])
    assert told["state"] is JobState.QUEUED
    assert [told[key] for key in ("exit_code", "reason", "fault", "hint", "ended")] == [None, "", None, None, None]


def test_new_attempt_starts_at_generation_0():
    events = [event(Kind.GENERATION, generation=3), event(Kind.REQUEUED), event(Kind.STARTED, attempt=1)]
    assert apply_events(events)["generation"] == 0


def test_an_attempt_that_started_after_an_end_is_alive():
    failed = event(Kind.FINISHED, outcome="failed", exit_code=1, reason="bad", fault="f", hint="h")
    told = apply_events([SUBMITTED, STARTED, failed, event(Kind.STARTED, attempt=1)])
    assert told["state"] is JobState.STARTING
    assert [told[key] for key in ("exit_code", "reason", "fault", "hint", "ended")] == [None, "", None, None, None]


def test_any_events_fit_a_status():
    told = apply_events([SUBMITTED, STARTED, RUNNING, FAULT, event(Kind.PROGRESS, step=1), FINISHED])
    RunStatus(run_id="x", path="/x", **told)


@pytest.mark.parametrize("kind", [Kind.RANK_READY, Kind.CHECKPOINT, Kind.NOTICE, Kind.PROGRESS])
def test_other_events_do_not_change_the_state(kind):
    assert apply_events([SUBMITTED, STARTED, RUNNING, event(kind)])["state"] is JobState.RUNNING


# From a directory


@pytest.fixture
def run_dir(tmp_path):
    run = RunDir(tmp_path / "gpt-20260115-101500-7f3a")
    run.create()
    job = Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="t.py"), cwd="/", python="py", scheduler="local")
    run.write_description(job, {})
    return run


def test_status_of_a_directory_follows_its_events(run_dir):
    run_dir.events.write_text("".join(f"{one.line()}\n" for one in (SUBMITTED, STARTED, RUNNING, FINISHED)))
    status = status_of(run_dir)
    assert (status.run_id, status.state, status.exit_code) == (run_dir.run_id, JobState.SUCCEEDED, 0)


def test_a_directory_without_a_living_supervisor_is_lost(run_dir):
    run_dir.events.write_text(f"{SUBMITTED.line()}\n{STARTED.line()}\n")
    run_dir.native_id.write_text("4194305 1\n")
    assert status_of(run_dir).state is JobState.LOST


def test_a_run_that_is_just_being_submitted_is_not_lost(run_dir):
    run_dir.events.write_text(f"{event(Kind.SUBMITTED, time=time.time()).line()}\n")
    run_dir.native_id.write_text(" " * 63 + "\n")
    status = status_of(run_dir)
    assert (status.state, status.reason) == (JobState.QUEUED, "being submitted")


def test_run_submitted_during_a_query_is_not_lost(run_dir, monkeypatch):
    class Slow:
        def query(self, run_dirs):
            run_dirs[0].native_id.write_text("4194305 1\n")
            return [None]

    run_dir.events.write_text(f"{event(Kind.SUBMITTED, time=time.time()).line()}\n")
    monkeypatch.setattr("echelon.observe.status.backend", lambda *_: Slow())
    assert status_of(run_dir).state is JobState.QUEUED


def test_run_without_events_is_not_lost(run_dir):
    assert status_of(run_dir).state is JobState.QUEUED


@pytest.mark.parametrize("text", [f"{SUBMITTED.line()}\n", ""])
def test_a_run_that_was_never_handed_over_is_lost(run_dir, text):
    run_dir.events.write_text(text)
    os.utime(run_dir.path, (0, 0))
    assert status_of(run_dir).state is JobState.LOST


def on_slurm(run_dir):
    job = Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="t.py"), cwd="/", python="py", scheduler="slurm")
    run_dir.write_description(job, {})
    run_dir.native_id.write_text("7\n")


def test_ended_runs_are_not_queried(run_dir, monkeypatch):
    on_slurm(run_dir)
    monkeypatch.setenv("PATH", "/nonexistent")
    run_dir.events.write_text("".join(f"{one.line()}\n" for one in (SUBMITTED, STARTED, FINISHED)))
    assert status_of(run_dir).state is JobState.SUCCEEDED


def test_failed_query_does_not_hide_other_runs(run_dir, monkeypatch):
    on_slurm(run_dir)
    monkeypatch.setenv("PATH", "/nonexistent")
    run_dir.events.write_text("".join(f"{one.line()}\n" for one in (SUBMITTED, STARTED, RUNNING)))
    status = status_of(run_dir)
    assert (status.state, status.reason) == (JobState.RUNNING, "last known state (cannot run squeue)")


@pytest.mark.parametrize(("text", "verdict"), [('{"sentence": "x"}', {"sentence": "x"}), ("[]", None), ("{", None)])
def test_a_verdict_is_an_object_or_none(run_dir, text, verdict):
    run_dir.attempt(0).path.mkdir()
    run_dir.attempt(0).error.write_text(text)
    assert read_verdict(run_dir, 0) == verdict
    assert read_verdict(run_dir, 1) is None


def test_saved_step_is_known_beside_the_trained_one():
    saved, failed = event(Kind.CHECKPOINT, step=900), event(Kind.FINISHED, outcome="failed", step=1000)
    told = apply_events([SUBMITTED, STARTED, RUNNING, event(Kind.PROGRESS, step=950), saved, failed])
    assert (told["step"], told["saved"]) == (1000, 900)
