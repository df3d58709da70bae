"""Parsers of qstat: every state letter, comment and exit code that was measured on PBS."""

import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.backends.pbs import query
from echelon.backends.pbs.hosts import parse_scheduler_view
from echelon.backends.pbs.query import job_status, parse_job_id, parse_statuses
from echelon.backends.pbs.states import comment_sentence, end_status, exit_code_of, hold_sentence
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


def test_qstat_fields_are_parsed_with_continued_lines():
    jobs = query.parse_jobs(TEXT)
    assert list(jobs) == ["12.pbs", "13.pbs"]
    assert jobs["12.pbs"]["job_state"] == "R"
    assert jobs["12.pbs"]["Variable_List"].endswith("ECHELON_SEAL=0123")
    assert jobs["12.pbs"]["Resource_List.walltime"] == "01:30:00"


@pytest.mark.parametrize("text", ["", "\n", '{"timestamp": 1}', "Job Id:", "    job_state = R\n"])
def test_empty_output_has_no_jobs(text):
    assert parse_statuses(text, ["1.pbs"]) == {}


@given(st.text())
def test_any_text_can_be_parsed(text):
    parse_statuses(text, ["1.pbs"])


def test_ids_match_by_number_if_server_names_differ():
    statuses = parse_statuses(TEXT, ["12.pbs.example.org", "13", "14.pbs"])
    assert {name: one.native for name, one in statuses.items()} == {"12.pbs.example.org": "R", "13": "H"}


def test_the_end_is_the_start_and_the_walltime():
    start = time.mktime((2026, 1, 15, 10, 15, 0, 0, 0, -1))
    assert query.walltime_end(query.parse_jobs(TEXT)["12.pbs"]) == start + 5400
    assert query.walltime_end({"stime": "Thu Jan 15 10:15:00 2026"}) is None
    assert query.walltime_end({"Resource_List.walltime": "01:00:00"}) is None
    assert query.walltime_end({"Resource_List.walltime": "01:00:00", "stime": "unknown"}) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("5400", 5400), ("90:00", 5400), ("1:30:00", 5400), ("100:00:00", 360000), ("", None), ("a", None)],
)
def test_walltimes_are_parsed(text, number):
    assert query.parse_walltime(text) == number


@pytest.mark.parametrize(
    ("letter", "state"),
    [
        ("Q", JobState.QUEUED),
        ("H", JobState.QUEUED),
        ("W", JobState.QUEUED),
        ("T", JobState.QUEUED),
        ("R", JobState.RUNNING),
        ("E", JobState.RUNNING),
        ("S", JobState.RUNNING),
        ("U", JobState.RUNNING),
        ("B", JobState.RUNNING),
        ("M", JobState.RUNNING),
        ("?", JobState.RUNNING),
        ("F", JobState.CANCELLED),
        ("X", JobState.CANCELLED),
    ],
)
def test_every_letter_has_a_state(letter, state):
    found = job_status({"job_state": letter})
    assert found.state is state
    assert found.native == letter
    assert found.reason or letter in "QRB"


def test_an_expired_element_without_exit_status_is_unknown():
    """It may have succeeded: the run's events decide."""
    assert parse_statuses("Job Id: 24[3].pbs\n    job_state = X\n", ["24[3].pbs"]) == {}


RERUN = "PBS reruns the job (qrerun or preemption); it is being queued again"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"job_state": "R", "substate": "60"}, RERUN),
        ({"job_state": "R", "substate": "63"}, RERUN),
        ({"job_state": "E", "substate": "51", "Exit_status": "-11"}, RERUN),
        ({"job_state": "E", "Exit_status": "-14"}, "another host of the job failed; it is being queued again"),
        ({"job_state": "E", "Exit_status": "-20"}, "the first host of the job failed; it is being queued again"),
    ],
)
def test_a_job_that_pbs_reruns_is_requeued(fields, reason):
    found = job_status(fields)
    assert (found.state, found.reason) == (JobState.REQUEUED, reason)
    assert parse_scheduler_view(as_text(fields), "1.pbs").is_requeued


@pytest.mark.parametrize(
    "fields", [{"job_state": "R", "substate": "42"}, {"job_state": "R", "substate": "64"}, {"job_state": "E"}]
)
def test_a_job_that_ends_for_good_is_not_requeued(fields):
    assert job_status(fields).state is JobState.RUNNING
    assert not parse_scheduler_view(as_text(fields), "1.pbs").is_requeued


def as_text(fields):
    return "Job Id: 1.pbs\n" + "".join(f"    {name} = {value}\n" for name, value in fields.items())


@pytest.mark.parametrize("code", [-11, -14, -20])
def test_exit_statuses_of_a_rerun_are_sentences(code):
    _, sentence, _ = end_status(code)
    assert sentence.endswith("; it was queued again and has not run since")


@pytest.mark.parametrize(
    ("code", "state", "shown"),
    [
        (0, JobState.SUCCEEDED, 0),
        (1, JobState.FAILED, 1),
        (75, JobState.FAILED, 75),
        (255, JobState.FAILED, 255),
        (256 + 9, JobState.FAILED, 137),
        (256 + 15, JobState.CANCELLED, 143),
        (256 + 11, JobState.FAILED, 139),
        (-29, JobState.FAILED, 124),
        (-27, JobState.FAILED, 1),
        (-99, JobState.FAILED, 1),
        (None, JobState.CANCELLED, 143),
    ],
)
def test_exit_status_gives_state_and_sentence(code, state, shown):
    fields = {"job_state": "F"} if code is None else {"job_state": "F", "Exit_status": str(code)}
    found = job_status(fields)
    assert (found.state, found.exit_code) == (state, shown)
    assert bool(found.reason) == (code != 0)


@pytest.mark.parametrize("number", range(1, 65))
def test_signals_become_shell_exit_codes(number):
    assert exit_code_of(256 + number) == 128 + number
    state, sentence, code = end_status(256 + number)
    assert code == 128 + number
    known = number in [one.value for one in signal.Signals]
    assert (
        state is JobState.CANCELLED if number == signal.SIGTERM else sentence.startswith("SIG" if known else "signal")
    )


@pytest.mark.parametrize("code", range(256))
def test_exit_codes_are_unchanged(code):
    assert exit_code_of(code) == code


@given(st.integers())
def test_only_success_has_exit_code_zero(code):
    state, _, shown = end_status(code)
    assert (shown == 0) == (code == 0) == (state is JobState.SUCCEEDED)


@pytest.mark.parametrize(
    ("comment", "sentence"),
    [
        ("Not Running: Insufficient amount of resource: ngpus", "not enough ngpus"),
        ("Not Running: Insufficient amount of queue resource: ncpus", "not enough ncpus in the queue"),
        (
            "Can Never Run: Insufficient amount of resource: ncpus (R: 96 A: 48 T: 48)",
            "it can never run: not enough ncpus (R: 96 A: 48 T: 48)",
        ),
        (
            "Can Never Run: can't fit in the largest placement set",
            "it can never run: can't fit in the largest placement set",
        ),
        ("Not Running: Queue not started.", "Queue not started."),
        ("Not Running: User has reached queue gpu running job limit.", "User has reached queue gpu running job limit."),
        ("Job run at Thu Jan 15 at 10:15 on (n1:ncpus=1)", ""),
        ("Job held by ada on Thu Jan 15", "Job held by ada on Thu Jan 15"),
        ("", ""),
    ],
)
def test_comments_become_reasons(comment, sentence):
    assert comment_sentence(comment) == sentence


def test_hold_reason_names_the_holder():
    assert "qrls" in hold_sentence("u", "")
    assert "operator" in hold_sentence("o", "")
    assert hold_sentence("s", "afterany:12.pbs@pbs") == "waiting for a job it depends on (afterany:12.pbs@pbs)"
    assert hold_sentence("n", "") == "held"
    assert parse_statuses(TEXT, ["13.pbs"])["13.pbs"].reason == "waiting for a job it depends on (afterany:12.pbs@pbs)"


def test_only_a_queued_job_has_an_expected_start():
    estimated = {"estimated.start_time": "Thu Jan 15 10:15:00 2026"}
    assert job_status({"job_state": "Q", **estimated}).expected_start is not None
    assert job_status({"job_state": "R", **estimated}).expected_start is None


@pytest.mark.parametrize("text", ["0.pbs\n", "24[].pbs-1.example.org\n", "1234\n", "a word from a hook\n99.gadi-pbs\n"])
def test_job_id_is_the_last_word_of_qsub(text):
    assert parse_job_id(text) == text.split()[-1]


@pytest.mark.parametrize("text", ["", "\n", "no id here", "-1.pbs", "1.pbs;rm"])
def test_invalid_job_ids_are_refused(text):
    with pytest.raises(ValueError, match="qsub printed"):
        parse_job_id(text)
