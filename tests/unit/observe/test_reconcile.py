"""The events' story against the scheduler's word: who is believed about what."""

import itertools

import pytest

from echelon.backends.slurm.query import job_status
from echelon.observe.reconcile import QueryFailed, RunEvidence, reconcile
from echelon.observe.status import RunStatus
from echelon.states import JobState, JobStatus

LIVE = [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.REQUEUED]
ENDED = [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]
PENDING = job_status("PENDING", reason="Resources", start="2026-01-15T10:15:00")
NOTHING = RunEvidence()
WORDS = [
    "PENDING",
    "REQUEUE_HOLD",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "CANCELLED",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "SOMETHING_NEW",
]
ANSWERS = [None, QueryFailed(why="Slurm does not answer"), *map(job_status, WORDS)]


def weighed(told, answer, **signs):
    return reconcile({"state": told}, answer, RunEvidence(**signs))


@pytest.mark.parametrize(("told", "answer"), list(itertools.product(ENDED, ANSWERS)))
def test_end_in_the_events_is_final(told, answer):
    story = {"state": told, "reason": "as recorded", "exit_code": 3}
    assert reconcile(story, answer, NOTHING) == story


@pytest.mark.parametrize(("told", "answer"), list(itertools.product(LIVE, ANSWERS)))
def test_reconciled_fields_fit_a_status_and_are_never_success(told, answer):
    for held, asked in itertools.product((False, True), repeat=2):
        story = weighed(told, answer, lease_held=held, cancel_asked=asked)
        assert RunStatus(run_id="x", path="/x", **story).state is not JobState.SUCCEEDED
        assert story.get("exit_code") != 0


# The scheduler does not know the run


def test_queued_run_unknown_to_its_scheduler_never_started():
    """This happens on PBS without a job history after a qdel."""
    assert "never started" in weighed(JobState.QUEUED, None)["reason"]
    assert "without an exit code" in weighed(JobState.RUNNING, None)["reason"]


@pytest.mark.parametrize("told", LIVE)
def test_unknown_run_without_an_end_is_lost(told):
    story = weighed(told, None)
    assert story["state"] is JobState.LOST
    assert "echelon resume" in story["hint"]


@pytest.mark.parametrize("told", LIVE)
def test_a_run_whose_lease_is_held_is_alive(told):
    assert weighed(told, None, lease_held=True)["state"] is told


@pytest.mark.parametrize("told", LIVE)
def test_unknown_run_with_a_cancel_mark_is_cancelled(told):
    assert weighed(told, None, cancel_asked=True)["state"] is JobState.CANCELLED


@pytest.mark.parametrize("told", LIVE)
def test_failed_query_keeps_the_state_and_is_reported(told):
    story = weighed(told, QueryFailed(why="Slurm does not answer"))
    assert (story["state"], story["reason"]) == (told, "last known state (Slurm does not answer)")


# It waits


def test_queued_run_has_reason_and_expected_start():
    story = weighed(JobState.QUEUED, PENDING)
    assert story["state"] is JobState.QUEUED
    assert story["reason"] == "waiting for nodes to become free"
    assert story["expected_start"] == PENDING.expected_start


@pytest.mark.parametrize("told", [JobState.STARTING, JobState.RUNNING, JobState.REQUEUED])
def test_a_run_that_started_and_waits_again_was_requeued(told):
    story = weighed(told, PENDING)
    assert (story["state"], story["reason"]) == (JobState.REQUEUED, "waiting for nodes to become free")


# It lives


@pytest.mark.parametrize("word", ["CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "SOMETHING_NEW"])
def test_state_of_a_running_job_comes_from_its_events(word):
    assert weighed(JobState.QUEUED, job_status(word))["state"] is JobState.STARTING
    for told in (JobState.STARTING, JobState.RUNNING, JobState.REQUEUED):
        assert weighed(told, job_status(word))["state"] is told


def test_native_state_of_a_running_job_is_reported():
    assert weighed(JobState.RUNNING, job_status("SUSPENDED"))["reason"] == "suspended"
    assert weighed(JobState.RUNNING, job_status("FLYING"))["reason"] == "Slurm's state is FLYING"


# It ended without a last word


@pytest.mark.parametrize(
    ("word", "state", "code", "words"),
    [
        ("TIMEOUT", JobState.FAILED, 124, "time limit"),
        ("NODE_FAIL", JobState.FAILED, 7, "one of its nodes failed"),
        ("OUT_OF_MEMORY", JobState.FAILED, 137, "memory"),
        ("PREEMPTED", JobState.FAILED, 7, "preempted"),
        ("BOOT_FAIL", JobState.FAILED, 7, "could not boot"),
        ("DEADLINE", JobState.FAILED, 124, "deadline"),
        ("FAILED", JobState.FAILED, 7, "FAILED"),
        ("CANCELLED", JobState.CANCELLED, 143, "cancelled"),
        ("COMPLETED", JobState.LOST, None, "without an exit code"),
    ],
)
def test_end_reported_only_by_the_scheduler(word, state, code, words):
    story = weighed(JobState.RUNNING, job_status(word, exit_code=7))
    assert (story["state"], story.get("exit_code")) == (state, code)
    assert words in story["reason"]


def test_a_job_cancelled_in_the_queue_never_started():
    assert weighed(JobState.QUEUED, job_status("CANCELLED"))["reason"] == "cancelled before it started"


def test_end_after_a_cancel_mark_is_a_cancel():
    assert (
        weighed(JobState.RUNNING, job_status("FAILED", exit_code=143), cancel_asked=True)["state"] is JobState.CANCELLED
    )


def test_live_local_process_adds_nothing():
    alive = JobStatus(state=JobState.RUNNING, native="alive")
    assert reconcile({"state": JobState.RUNNING, "reason": "x"}, alive, NOTHING) == {
        "state": JobState.RUNNING,
        "reason": "x",
    }


# An exit code that the run left, though no event tells of its end


@pytest.mark.parametrize("answer", [None, *(job_status(word) for word in WORDS if job_status(word).state.ended)])
@pytest.mark.parametrize(("code", "state"), [(0, JobState.SUCCEEDED), (1, JobState.FAILED), (143, JobState.FAILED)])
def test_exit_code_file_gives_the_state(answer, code, state):
    story = weighed(JobState.RUNNING, answer, exit_code=code)
    assert (story["state"], story["exit_code"]) == (state, code)


def test_exit_code_is_ignored_while_the_run_is_live():
    assert weighed(JobState.RUNNING, job_status("RUNNING"), exit_code=1)["state"] is JobState.RUNNING
    assert weighed(JobState.REQUEUED, None, exit_code=75)["state"] is JobState.LOST


def test_cancelled_run_with_an_exit_code_is_cancelled():
    story = weighed(JobState.RUNNING, None, exit_code=143, cancel_asked=True)
    assert (story["state"], story["exit_code"]) == (JobState.CANCELLED, 143)
