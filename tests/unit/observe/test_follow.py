"""Events as they are told to the person who watches."""

import shutil
import subprocess
import time

import pytest

from echelon.backends import backend
from echelon.events import Event, Kind, append_event
from echelon.job import Job, Script, ScriptKind
from echelon.observe import follow as following
from echelon.observe.follow import Follower, QueryTimer, event_sentence, expected_sentence, follow, queue_sentence
from echelon.observe.status import RunStatus, status_of
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.submission.submit import cancel
from echelon.system.processes import start_time


def sentence(kind, attempt=0, **fields):
    return event_sentence(Event(kind=kind, time=1.0, attempt=attempt, fields=fields))


@pytest.mark.parametrize(("left", "words"), [(0, "0 restarts left"), (1, "1 restart left"), (2, "2 restarts left")])
def test_fault_message_has_the_restarts_left(left, words):
    assert sentence(Kind.FAULT, fault="rank 0 died", restarts_left=left) == f"rank 0 died ({words})"


def test_generation_message_has_its_hosts():
    assert sentence(Kind.GENERATION, generation=2, hosts=["a", "b"]) == "generation 2 starts on a, b"


def test_first_generation_is_not_shown():
    assert sentence(Kind.GENERATION, generation=0, hosts=["a"]) is None


def test_notice_message_has_the_time_left():
    assert sentence(Kind.NOTICE, seconds_left=59.5) == "notice: 59.5 s until the time limit"


def test_a_warning_is_shown():
    text = "ranks 0-2 finished; rank 3 has not exited for 30 s"
    assert sentence(Kind.WARNING, text=text) == f"warning: {text}"


def test_a_requeue_names_the_attempt_that_follows():
    told = sentence(Kind.REQUEUED, attempt=2, reason="the time limit was reached")
    assert told == "the time limit was reached: requeued, attempt 3 follows"


@pytest.mark.parametrize(
    "kind", [Kind.SUBMITTED, Kind.STARTED, Kind.RANK_READY, Kind.PROGRESS, Kind.CHECKPOINT, Kind.FINISHED]
)
def test_other_events_are_not_shown(kind):
    assert sentence(kind) is None


@pytest.mark.parametrize("kind", Kind)
def test_event_without_its_fields_does_not_crash(kind):
    sentence(kind)


# Waiting in a queue


def status(state, **fields):
    return RunStatus(run_id="x", path="/x", state=state, **fields)


NOON = time.mktime((2026, 1, 15, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (3600, "expected to start at 13:00"),
        (90, "expected to start at 12:01"),
        (20 * 3600, "expected to start on Fri 16 Jan at 08:00"),
        (-60, ""),
        (365 * 86400, ""),
    ],
)
def test_expected_start_is_shown_to_the_minute(seconds, sentence):
    assert expected_sentence(NOON + seconds, NOON) == sentence


def test_unknown_start_is_not_shown():
    assert expected_sentence(None, NOON) == ""


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (status(JobState.QUEUED), "queued"),
        (status(JobState.QUEUED, reason="nodes are busy"), "queued: nodes are busy"),
        (
            status(JobState.REQUEUED, reason="wait", expected_start=NOON + 3600),
            "requeued: wait; expected to start at 13:00",
        ),
        (status(JobState.RUNNING, reason="x"), ""),
        (status(JobState.FAILED, reason="x"), ""),
    ],
)
def test_only_queued_runs_have_a_queue_sentence(told, sentence):
    assert queue_sentence(told, NOON) == sentence


def waiting(minutes=None, reason="busy"):
    return status(JobState.QUEUED, reason=reason, expected_start=None if minutes is None else NOON + 60 * minutes)


@pytest.mark.parametrize(
    ("told", "now", "news"),
    [
        (None, waiting(), True),
        (None, status(JobState.RUNNING), False),
        (waiting(), waiting(), False),
        (waiting(), waiting(reason="other"), True),
        (waiting(), waiting(60), True),
        (waiting(60), waiting(), True),
        (waiting(60), waiting(61), False),
        (waiting(60), waiting(65), False),
        (waiting(60), waiting(67), True),
        (waiting(60), waiting(30), True),
        (waiting(600), waiting(640), False),
        (waiting(2), waiting(4), True),
        (waiting(60), status(JobState.RUNNING), True),
        (status(JobState.RUNNING), status(JobState.STARTING), False),
        (status(JobState.RUNNING), status(JobState.REQUEUED, reason="busy"), True),
    ],
)
def test_queue_changes_that_are_shown_again(told, now, news):
    assert following.queue_changed(told, now, NOON) is news


# Following


class Scheduler:
    """Asked as often as one likes."""

    runs_script_here = False

    def __init__(self):
        self.asked = []

    def query_interval(self, seconds):
        self.asked.append(seconds)
        return 0.0


@pytest.fixture
def run_dir(tmp_path):
    run = RunDir(tmp_path / "gpt-20260115-101500-7f3a")
    run.create()
    run.write_description(
        Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="t.py"), cwd="/", python="py", scheduler="local"), {}
    )
    return run


@pytest.fixture
def heard():
    return []


@pytest.fixture
def follower(run_dir, heard):
    return Follower(run_dir, attempt=0, write=lambda _: None, say=heard.append)


def test_queue_reason_is_shown_once_per_change(follower, heard):
    for reason in ("Resources", "Resources", "Priority", "Priority"):
        follower.apply_status(status(JobState.QUEUED, reason=reason), 0)
    follower.apply_status(status(JobState.RUNNING), 0)
    follower.apply_status(status(JobState.REQUEUED, reason="Priority"), 0)
    follower.apply_status(status(JobState.CANCELLED), 60)
    assert heard == [
        "queued: Resources",
        "queued: Priority",
        "nodes allocated, starting",
        "requeued: Priority",
    ]


def test_end_recorded_by_the_run_is_shown_at_once(follower):
    follower.apply_status(status(JobState.FAILED, ended=1.0), 60)
    assert follower.end is not None


def test_end_seen_only_by_the_scheduler_waits_for_the_event(follower, run_dir):
    follower.apply_status(status(JobState.FAILED), 60)
    assert follower.end is None
    append_event(run_dir.events, Kind.FINISHED, 0, outcome="succeeded", exit_code=0)
    assert follower.show_new_output()
    follower.apply_status(status(JobState.SUCCEEDED, ended=1.0), 60)
    assert follower.end.state is JobState.SUCCEEDED


def test_end_without_an_event_is_shown_after_a_delay(follower):
    follower.apply_status(status(JobState.LOST), 60)
    follower.apply_status(status(JobState.LOST), 0)
    assert follower.end is not None


def test_several_runs_are_followed_with_one_query(tmp_path, monkeypatch, heard):
    questions = []

    def statuses(run_dirs):
        questions.append(len(run_dirs))
        ended = len(questions) > 2
        return [
            RunStatus(run_id=run.run_id, path="", state=JobState.FAILED if ended else JobState.RUNNING, ended=1.0)
            for run in run_dirs
        ]

    monkeypatch.setattr(following, "statuses", statuses)
    monkeypatch.setattr(following, "SHARED_POLL_SECONDS", 0.0)
    followers = [Follower(RunDir(tmp_path / name), attempt=0, write=lambda _: None, say=heard.append) for name in "abc"]
    assert list(follow(followers, Scheduler())) == followers
    assert questions == [3, 3, 3]


def test_query_pauses_restart_after_a_change(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(following.time, "monotonic", lambda: clock[0])
    scheduler = Scheduler()
    pace = QueryTimer(scheduler)
    for seconds in (1, 4, 20, 500):
        clock[0] = 100.0 + seconds
        assert pace.is_due()
    pace.restart()
    clock[0] += 1
    assert pace.is_due()
    assert scheduler.asked == [0, 1, 4, 20, 500, 10], "never again as often as in the first moments"


def test_follower_stays_when_the_run_directory_disappears(tmp_path):
    run = RunDir(tmp_path / "gpt-20260101-000000-abcd")
    run.create()
    job = Job(
        name="gpt", script=Script(kind=ScriptKind.FILE, target="t.py"), cwd="/", python="python", scheduler="local"
    )
    run.write_description(job, {})
    append_event(run.events, Kind.SUBMITTED, 0)
    with subprocess.Popen(["sleep", "100"]) as supervisor:
        run.native_id.write_text(f"{supervisor.pid} {start_time(supervisor.pid)}")
        said = []
        follower = Follower(run, attempt=0, write=lambda _: None, say=said.append)
        follower.apply_status(status_of(follower.run_dir), 0.0)
        shutil.rmtree(run.path)
        follower.show_new_output()
        follower.apply_status(status_of(follower.run_dir), 0.0)
        assert follower.end is None
        supervisor.kill()
        supervisor.wait()
        (ended,) = follow([follower], backend("local"))
    assert said[-1] == f"{run.path} was removed, so no output can be shown; waiting for the run to end"
    assert ended.end.reason.startswith("the run has ended; its directory was removed")
    assert cancel(follower.run_dir) is False
