"""What qstat prints, read: as JSON and as text, with every letter, comment and exit code that FACTS of PBS name."""

import json
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon import qstat
from echelon.schedulers.pbs_queue import parse_job_id, parse_statuses, status
from echelon.schedulers.pbs_words import comment_sentence, ending, exit_code_of, hold_sentence
from echelon.states import JobState

TEXT = """\
Job Id: 12.pbs
    Job_Name = gpt
    Job_Owner = ada@login
    resources_used.cpupercent = 98
    resources_used.walltime = 00:01:10
    job_state = R
    queue = workq
    Hold_Types = n
    Resource_List.ncpus = 2
    Resource_List.place = scatter
    Resource_List.select = 2:ncpus=1:mpiprocs=1
    Resource_List.walltime = 01:30:00
    stime = Thu Jan 15 10:15:00 2026
    Variable_List = PBS_O_HOME=/home/ada,PBS_O_LANG=C.UTF-8,PBS_O_LOGNAME=ada,
\tPBS_O_PATH=/usr/local/bin:/usr/bin:/bin,PBS_O_SHELL=/bin/bash,job_state = F,E
\tCHELON_SEAL=0123
    comment = Job run at Thu Jan 15 at 10:15 on (n1:ncpus=1)+(n2:ncpus=1)
    run_count = 1

Job Id: 13.pbs
    Job_Name = next
    job_state = H
    Hold_Types = s
    depend = afterany:12.pbs@pbs

"""
JSON = json.dumps(
    {
        "timestamp": 1768472100,
        "pbs_version": "23.06.06",
        "pbs_server": "pbs",
        "Jobs": {
            "12.pbs": {
                "Job_Name": "gpt",
                "job_state": "F",
                "Exit_status": 271,
                "Resource_List": {"ncpus": 2, "walltime": "01:30:00"},
                "stime": "Thu Jan 15 10:15:00 2026",
            },
            "14.pbs": {"job_state": "Q", "comment": "Not Running: Insufficient amount of resource: ngpus"},
        },
    },
    indent=4,
)


def test_text_is_read_field_by_field_and_lines_that_go_on_are_joined():
    jobs = qstat.parse(TEXT)
    assert list(jobs) == ["12.pbs", "13.pbs"]
    assert jobs["12.pbs"]["job_state"] == "R"
    assert jobs["12.pbs"]["Variable_List"].endswith("ECHELON_SEAL=0123")
    assert jobs["12.pbs"]["Resource_List.walltime"] == "01:30:00"


def test_json_is_read_into_the_same_fields():
    jobs = qstat.parse(JSON)
    assert jobs["12.pbs"]["Resource_List.walltime"] == "01:30:00"
    assert jobs["12.pbs"]["Exit_status"] == "271"


@pytest.mark.parametrize("text", ["{", '{"Jobs":', '{"Jobs": []}', '{"Jobs": {"1": {"comment": "a "b""}}}'])
def test_json_that_is_none_is_refused_so_that_the_text_is_asked_for(text):
    with pytest.raises(ValueError):
        parse_statuses(text, ["1"])


@pytest.mark.parametrize("text", ["", "\n", '{"timestamp": 1}', "Job Id:", "    job_state = R\n"])
def test_nothing_is_known_where_nothing_is_told(text):
    assert parse_statuses(text, ["1.pbs"]) == {}


@given(st.text())
def test_whatever_is_printed_is_data(text):
    try:
        parse_statuses(text, ["1.pbs"])
    except ValueError:
        pass


def test_ids_match_by_number_where_the_server_has_another_name():
    statuses = parse_statuses(TEXT, ["12.pbs.example.org", "13", "14.pbs"])
    assert {name: one.native for name, one in statuses.items()} == {"12.pbs.example.org": "R", "13": "H"}


def test_the_end_is_the_start_and_the_walltime():
    start = time.mktime((2026, 1, 15, 10, 15, 0, 0, 0, -1))
    assert qstat.end_of(qstat.parse(TEXT)["12.pbs"]) == start + 5400
    assert qstat.end_of({"stime": "Thu Jan 15 10:15:00 2026"}) is None
    assert qstat.end_of({"Resource_List.walltime": "01:00:00"}) is None
    assert qstat.end_of({"Resource_List.walltime": "01:00:00", "stime": "unknown"}) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("5400", 5400), ("90:00", 5400), ("1:30:00", 5400), ("100:00:00", 360000), ("", None), ("a", None)],
)
def test_durations(text, number):
    assert qstat.seconds(text) == number


@pytest.mark.parametrize(
    ("letter", "state"),
    [
        ("Q", JobState.QUEUED), ("H", JobState.QUEUED), ("W", JobState.QUEUED), ("T", JobState.QUEUED),
        ("R", JobState.RUNNING), ("E", JobState.RUNNING), ("S", JobState.RUNNING), ("U", JobState.RUNNING),
        ("B", JobState.RUNNING), ("M", JobState.RUNNING), ("?", JobState.RUNNING),
        ("F", JobState.CANCELLED), ("X", JobState.CANCELLED),
    ],
)  # fmt: skip
def test_every_letter_has_a_state(letter, state):
    found = status({"job_state": letter})
    assert found.state is state
    assert found.native == letter
    assert found.reason or letter in "QRB"


@pytest.mark.parametrize(
    ("code", "state", "shown"),
    [
        (0, JobState.SUCCEEDED, 0), (1, JobState.FAILED, 1), (75, JobState.FAILED, 75), (255, JobState.FAILED, 255),
        (256 + 9, JobState.FAILED, 137), (256 + 15, JobState.CANCELLED, 143), (256 + 11, JobState.FAILED, 139),
        (-29, JobState.FAILED, 124), (-27, JobState.FAILED, 1), (-99, JobState.FAILED, 1), (None, JobState.CANCELLED, 143),
    ],
)  # fmt: skip
def test_exit_status_tells_how_it_ended(code, state, shown):
    fields = {"job_state": "F"} if code is None else {"job_state": "F", "Exit_status": str(code)}
    found = status(fields)
    assert (found.state, found.exit_code) == (state, shown)
    assert bool(found.reason) == (code != 0)


@pytest.mark.parametrize("number", range(1, 65))
def test_every_signal_is_said_as_shells_say_it(number):
    assert exit_code_of(256 + number) == 128 + number
    state, sentence, code = ending(256 + number)
    assert code == 128 + number
    known = number in [one.value for one in signal.Signals]
    assert (
        state is JobState.CANCELLED if number == signal.SIGTERM else sentence.startswith("SIG" if known else "signal")
    )


@pytest.mark.parametrize("code", range(256))
def test_every_exit_code_is_its_own(code):
    assert exit_code_of(code) == code


@given(st.integers())
def test_whatever_the_number_zero_is_for_success_alone(code):
    state, _, shown = ending(code)
    assert (shown == 0) == (code == 0) == (state is JobState.SUCCEEDED)


@pytest.mark.parametrize(
    ("comment", "sentence"),
    [
        ("Not Running: Insufficient amount of resource: ngpus", "not enough ngpus"),
        ("Not Running: Insufficient amount of queue resource: ncpus", "not enough ncpus in the queue"),
        ("Can Never Run: Insufficient amount of resource: ncpus (R: 96 A: 48 T: 48)",
         "it can never run as it is: not enough ncpus (R: 96 A: 48 T: 48)"),
        ("Can Never Run: can't fit in the largest placement set", "it can never run as it is: can't fit in the largest placement set"),
        ("Not Running: Queue not started.", "Queue not started."),
        ("Not Running: User has reached queue gpu running job limit.", "User has reached queue gpu running job limit."),
        ("Job run at Thu Jan 15 at 10:15 on (n1:ncpus=1)", ""),
        ("Job held by ada on Thu Jan 15", "Job held by ada on Thu Jan 15"),
        ("", ""),
    ],
)  # fmt: skip
def test_comments_become_reasons(comment, sentence):
    assert comment_sentence(comment) == sentence


def test_holds_are_told_by_who_holds():
    assert "qrls" in hold_sentence("u", "")
    assert "operator" in hold_sentence("o", "")
    assert hold_sentence("s", "afterany:12.pbs@pbs") == "waiting for a job it depends on (afterany:12.pbs@pbs)"
    assert hold_sentence("n", "") == "held"
    assert parse_statuses(TEXT, ["13.pbs"])["13.pbs"].reason == "waiting for a job it depends on (afterany:12.pbs@pbs)"


def test_an_expected_start_is_shown_of_a_queued_job_alone():
    estimated = {"estimated.start_time": "Thu Jan 15 10:15:00 2026"}
    assert status({"job_state": "Q", **estimated}).expected_start is not None
    assert status({"job_state": "R", **estimated}).expected_start is None


@pytest.mark.parametrize("text", ["0.pbs\n", "24[].pbs-1.example.org\n", "1234\n", "a word from a hook\n99.gadi-pbs\n"])
def test_what_qsub_prints_last_is_the_id(text):
    assert parse_job_id(text) == text.split()[-1]


@pytest.mark.parametrize("text", ["", "\n", "no id here", "-1.pbs", "1.pbs;rm"])
def test_anything_else_is_no_id(text):
    with pytest.raises(ValueError, match="qsub printed"):
        parse_job_id(text)
