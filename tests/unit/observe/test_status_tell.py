"""A run's story, told from its events."""

import os
import time

import pytest

from echelon.events import Event, Kind
from echelon.job import Job, Script, ScriptKind
from echelon.observe.status import RunStatus, read_verdict, status_of, tell
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
def test_the_last_word_gives_the_state(events, state):
    assert tell(events)["state"] is state


def test_the_end_tells_code_reason_fault_hint_and_time():
    told = tell(
        [event(Kind.FINISHED, time=9.0, outcome="failed", exit_code=7, reason="r", fault="f", hint="h")],
    )
    assert {key: told[key] for key in ("exit_code", "reason", "fault", "hint", "ended")} == {
        "exit_code": 7, "reason": "r", "fault": "f", "hint": "h", "ended": 9.0,
    }  # fmt: skip


def test_the_last_fault_and_step_are_remembered():
    told = tell([SUBMITTED, RUNNING, event(Kind.PROGRESS, step=5), event(Kind.PROGRESS, step=9), FAULT])
    assert (told["step"], told["last_fault"]) == (9, "rank 0 died")
    assert told.get("fault") is None, "the run may yet recover from it"


def test_the_first_submission_is_when_the_run_was_submitted():
    told = tell([SUBMITTED, event(Kind.SUBMITTED, time=99.0, attempt=1)])
    assert (told["submitted"], told["attempt"]) == (10.0, 1)


def test_resuming_forgets_how_the_last_attempt_ended():
    failed = event(Kind.FINISHED, outcome="failed", exit_code=1, reason="bad", fault="f", hint="h")
    told = tell([SUBMITTED, failed, event(Kind.SUBMITTED, attempt=1)])
    assert told["state"] is JobState.QUEUED
    assert [told[key] for key in ("exit_code", "reason", "fault", "hint", "ended")] == [None, "", None, None, None]


def test_a_new_attempt_counts_its_generations_anew():
    events = [event(Kind.GENERATION, generation=3), event(Kind.REQUEUED), event(Kind.STARTED, attempt=1)]
    assert tell(events)["generation"] == 0


def test_an_attempt_that_started_after_an_end_is_alive():
    failed = event(Kind.FINISHED, outcome="failed", exit_code=1, reason="bad", fault="f", hint="h")
    told = tell([SUBMITTED, STARTED, failed, event(Kind.STARTED, attempt=1)])
    assert told["state"] is JobState.STARTING
    assert [told[key] for key in ("exit_code", "reason", "fault", "hint", "ended")] == [None, "", None, None, None]


def test_every_story_fits_a_status():
    told = tell([SUBMITTED, STARTED, RUNNING, FAULT, event(Kind.PROGRESS, step=1), FINISHED])
    RunStatus(run_id="x", path="/x", **told)


@pytest.mark.parametrize("kind", [Kind.RANK_READY, Kind.CHECKPOINT, Kind.NOTICE, Kind.PROGRESS])
def test_these_do_not_change_the_state(kind):
    assert tell([SUBMITTED, STARTED, RUNNING, event(kind)])["state"] is JobState.RUNNING


# From a directory


@pytest.fixture
def run_dir(tmp_path):
    run = RunDir(tmp_path / "gpt-20260115-101500-7f3a")
    run.create()
    job = Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="t.py"), cwd="/", python="py")
    run.write_description(job, {})
    return run


def test_a_directory_is_told_as_its_events_are(run_dir):
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


def test_a_run_that_is_handed_over_while_its_scheduler_is_asked_is_not_lost(run_dir, monkeypatch):
    class Slow:
        def query(self, run_dirs):
            run_dirs[0].native_id.write_text("4194305 1\n")
            return [None]

    run_dir.events.write_text(f"{event(Kind.SUBMITTED, time=time.time()).line()}\n")
    monkeypatch.setattr("echelon.observe.status.member", lambda *_: Slow())
    assert status_of(run_dir).state is JobState.QUEUED


def test_a_run_with_no_event_yet_is_not_lost(run_dir):
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


def test_a_scheduler_is_not_asked_about_runs_that_tell_of_their_own_end(run_dir, monkeypatch):
    on_slurm(run_dir)
    monkeypatch.setenv("PATH", "/nonexistent")
    run_dir.events.write_text("".join(f"{one.line()}\n" for one in (SUBMITTED, STARTED, FINISHED)))
    assert status_of(run_dir).state is JobState.SUCCEEDED


def test_a_scheduler_that_cannot_be_asked_costs_nobody_the_list(run_dir, monkeypatch):
    on_slurm(run_dir)
    monkeypatch.setenv("PATH", "/nonexistent")
    run_dir.events.write_text("".join(f"{one.line()}\n" for one in (SUBMITTED, STARTED, RUNNING)))
    status = status_of(run_dir)
    assert (status.state, status.reason) == (JobState.RUNNING, "as last heard; cannot run squeue")


@pytest.mark.parametrize(("text", "verdict"), [('{"sentence": "x"}', {"sentence": "x"}), ("[]", None), ("{", None)])
def test_a_verdict_is_an_object_or_none(run_dir, text, verdict):
    run_dir.attempt(0).path.mkdir()
    run_dir.attempt(0).error.write_text(text)
    assert read_verdict(run_dir, 0) == verdict
    assert read_verdict(run_dir, 1) is None
