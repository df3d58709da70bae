"""The events' story against the scheduler's word: who is believed about what."""

import itertools

import pytest

from echelon.observe.status import RunStatus
from echelon.observe.weigh import Signs, Unheard, weigh
from echelon.schedulers.slurm_queue import status
from echelon.states import JobState, JobStatus

LIVE = [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.REQUEUED]
ENDED = [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]
PENDING = status("PENDING", reason="Resources", start="2026-01-15T10:15:00")
NOTHING = Signs()
WORDS = ["PENDING", "REQUEUE_HOLD", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "COMPLETED", "FAILED", "TIMEOUT",
         "NODE_FAIL", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY", "SOMETHING_NEW"]  # fmt: skip
ANSWERS = [None, Unheard(why="Slurm does not answer"), *map(status, WORDS)]


def weighed(told, answer, **signs):
    return weigh({"state": told}, answer, Signs(**signs))


@pytest.mark.parametrize(("told", "answer"), list(itertools.product(ENDED, ANSWERS)))
def test_an_end_that_the_events_tell_is_the_end(told, answer):
    story = {"state": told, "reason": "as recorded", "exit_code": 3}
    assert weigh(story, answer, NOTHING) == story


@pytest.mark.parametrize(("told", "answer"), list(itertools.product(LIVE, ANSWERS)))
def test_whatever_is_told_fits_a_status_and_is_never_success(told, answer):
    for held, asked in itertools.product((False, True), repeat=2):
        story = weighed(told, answer, lease_held=held, cancel_asked=asked)
        assert RunStatus(run_id="x", path="/x", **story).state is not JobState.SUCCEEDED
        assert story.get("exit_code") != 0


# The scheduler does not know the run


@pytest.mark.parametrize("told", LIVE)
def test_a_run_that_nobody_knows_and_that_left_no_end_is_lost(told):
    story = weighed(told, None)
    assert story["state"] is JobState.LOST
    assert "left no exit code" in story["reason"]
    assert "echelon resume" in story["hint"]


@pytest.mark.parametrize("told", LIVE)
def test_a_run_whose_lease_is_held_is_alive(told):
    assert weighed(told, None, lease_held=True)["state"] is told


@pytest.mark.parametrize("told", LIVE)
def test_a_run_that_nobody_knows_after_a_person_cancelled_it_is_cancelled(told):
    assert weighed(told, None, cancel_asked=True)["state"] is JobState.CANCELLED


@pytest.mark.parametrize("told", LIVE)
def test_a_scheduler_that_cannot_be_asked_changes_nothing_but_is_said(told):
    story = weighed(told, Unheard(why="Slurm does not answer"))
    assert (story["state"], story["reason"]) == (told, "as last heard; Slurm does not answer")


# It waits


def test_a_run_in_the_queue_tells_why_and_until_when():
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
def test_a_job_that_has_its_nodes_is_as_far_as_its_events_say(word):
    assert weighed(JobState.QUEUED, status(word))["state"] is JobState.STARTING
    for told in (JobState.STARTING, JobState.RUNNING, JobState.REQUEUED):
        assert weighed(told, status(word))["state"] is told


def test_what_the_scheduler_says_of_a_living_job_is_passed_on():
    assert weighed(JobState.RUNNING, status("SUSPENDED"))["reason"] == "suspended"
    assert weighed(JobState.RUNNING, status("FLYING"))["reason"] == "Slurm calls it FLYING"


# It ended without a last word


@pytest.mark.parametrize(
    ("word", "state", "code", "words"),
    [
        ("TIMEOUT", JobState.FAILED, 124, "time limit"),
        ("NODE_FAIL", JobState.FAILED, 7, "a node of it failed"),
        ("OUT_OF_MEMORY", JobState.FAILED, 137, "memory"),
        ("PREEMPTED", JobState.FAILED, 7, "make way"),
        ("BOOT_FAIL", JobState.FAILED, 7, "could not be started"),
        ("DEADLINE", JobState.FAILED, 124, "deadline"),
        ("FAILED", JobState.FAILED, 7, "FAILED"),
        ("CANCELLED", JobState.CANCELLED, 143, "cancelled"),
        ("COMPLETED", JobState.LOST, None, "left no exit code"),
    ],
)
def test_an_end_that_only_the_scheduler_tells_of(word, state, code, words):
    story = weighed(JobState.RUNNING, status(word, exit_code=7))
    assert (story["state"], story.get("exit_code")) == (state, code)
    assert words in story["reason"]


def test_a_job_cancelled_in_the_queue_never_started():
    assert weighed(JobState.QUEUED, status("CANCELLED"))["reason"] == "cancelled before it started"


def test_an_end_that_a_person_asked_for_is_a_cancel_whatever_the_scheduler_calls_it():
    assert weighed(JobState.RUNNING, status("FAILED", exit_code=143), cancel_asked=True)["state"] is JobState.CANCELLED


def test_a_local_process_that_lives_says_nothing_more():
    alive = JobStatus(state=JobState.RUNNING, native="alive")
    assert weigh({"state": JobState.RUNNING, "reason": "x"}, alive, NOTHING) == {
        "state": JobState.RUNNING,
        "reason": "x",
    }


# An exit code that the run left, though no event tells of its end


@pytest.mark.parametrize("answer", [None, *(status(word) for word in WORDS if status(word).state.ended)])
@pytest.mark.parametrize(("code", "state"), [(0, JobState.SUCCEEDED), (1, JobState.FAILED), (143, JobState.FAILED)])
def test_an_exit_code_in_its_folder_is_an_answer(answer, code, state):
    story = weighed(JobState.RUNNING, answer, exit_code=code)
    assert (story["state"], story["exit_code"]) == (state, code)


def test_it_is_none_while_the_scheduler_says_that_the_run_lives_or_is_to_go_on():
    assert weighed(JobState.RUNNING, status("RUNNING"), exit_code=1)["state"] is JobState.RUNNING
    assert weighed(JobState.REQUEUED, None, exit_code=75)["state"] is JobState.LOST


def test_a_cancelled_run_that_left_one_is_cancelled():
    story = weighed(JobState.RUNNING, None, exit_code=143, cancel_asked=True)
    assert (story["state"], story["exit_code"]) == (JobState.CANCELLED, 143)
