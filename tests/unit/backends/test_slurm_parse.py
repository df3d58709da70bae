"""Parsers of recorded output of squeue, sacct and scontrol."""

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.backends.slurm.query import (
    job_status,
    number_and_cluster,
    parse_exit_code,
    parse_job_id,
    parse_sacct,
    parse_scontrol,
    parse_squeue,
    parse_time,
    sacct_argv,
    scontrol_argv,
    squeue_argv,
)
from echelon.states import JobState, JobStatus

RECORDED = Path(__file__).parent / "recorded"


def recorded(name):
    return (RECORDED / name).read_text()


# Job ids


@pytest.mark.parametrize("text", ["123\n", "123;far\n", "  99\n", "sbatch: warning about something\n77\n"])
def test_job_id_is_the_last_word_of_sbatch(text):
    assert parse_job_id(text) == text.split()[-1]


@pytest.mark.parametrize(
    "text", ["", "\n", "Submitted batch job", "12a", "-1", "1.5", "12;", "12;a b", "1;x;y", "0x1f"]
)
def test_invalid_ids_are_refused(text):
    with pytest.raises(ValueError, match="sbatch printed"):
        parse_job_id(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("1", ("1", None)), ("12_3", ("12_3", None)), ("12;far", ("12", "far")), ("1_2;a-b", ("1_2", "a-b"))],
)
def test_id_has_a_number_and_an_optional_cluster(text, parts):
    assert number_and_cluster(text) == parts


# Questions


def test_one_query_covers_all_jobs():
    assert "--jobs=1,2_3" in squeue_argv(["1", "2_3"], None, 5001)
    assert "--jobs=1,2_3" in sacct_argv(["1", "2_3"], None)


@pytest.mark.parametrize("argv", [squeue_argv(["1"], "far", 0), sacct_argv(["1"], "far"), scontrol_argv("1", "far")])
def test_job_of_another_cluster_is_queried_there(argv):
    assert argv[1] == "--clusters=far"


# Answers


def states(found):
    return {number: one.state for number, one in found.items()}


def test_squeue_output_is_parsed():
    found = parse_squeue(recorded("squeue-22.05.txt"))
    assert states(found) == {
        "1003": JobState.CANCELLED,
        "1006": JobState.CANCELLED,
        "1001": JobState.SUCCEEDED,
        "1002": JobState.FAILED,
        "1007": JobState.FAILED,
        "989158": JobState.QUEUED,
        "989160_1": JobState.QUEUED,
        "989160_2": JobState.QUEUED,
        "989161": JobState.QUEUED,
        "989160_0": JobState.RUNNING,
        "1008": JobState.RUNNING,
    }
    assert found["989158"].native == "PENDING (Resources)"
    assert found["989158"].reason == "waiting for nodes to become free"
    assert found["989158"].expected_start == datetime(2027, 11, 16, 3, 13, 57).timestamp()
    assert found["989161"].expected_start is None
    assert found["1008"] == JobStatus(state=JobState.RUNNING, native="RUNNING")


def test_squeue_output_of_24_11_is_parsed():
    found = parse_squeue(recorded("squeue-24.11.txt"))
    assert states(found) == {
        "9562": JobState.CANCELLED,
        "9560": JobState.SUCCEEDED,
        "9561": JobState.FAILED,
        "9565": JobState.FAILED,
        "9566": JobState.QUEUED,
        "9569": JobState.QUEUED,
        "9563_1": JobState.QUEUED,
        "9563_2": JobState.QUEUED,
        "9567": JobState.QUEUED,
        "9564": JobState.QUEUED,
        "9563_0": JobState.RUNNING,
    }
    assert found["9565"].reason == "a signal ended it (53(Real-time signal 19))"
    assert "never start" in found["9567"].reason


def test_lines_without_a_job_are_skipped():
    assert parse_squeue("CLUSTER: far\n\nslurm_load_jobs error\n1|RUNNING\n|||\n") == {}


@given(st.text())
def test_any_squeue_output_can_be_parsed(text):
    parse_squeue(text)
    parse_sacct(text)
    parse_scontrol(text)


@given(st.text(st.characters(codec=None, exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")))
def test_reason_may_contain_any_character(reason):
    [(number, told)] = parse_squeue(f"7|PENDING|N/A|{reason}\n").items()
    assert (number, told.state) == ("7", JobState.QUEUED)


def test_sacct_output_is_parsed():
    found = parse_sacct(recorded("sacct-22.05.txt"))
    assert {number: (one.state, one.native, one.exit_code) for number, one in found.items()} == {
        "1001": (JobState.SUCCEEDED, "COMPLETED", 0),
        "1002": (JobState.FAILED, "FAILED", 3),
        "1003": (JobState.CANCELLED, "CANCELLED", 143),
        "1005": (JobState.RUNNING, "RUNNING", None),
        "1006": (JobState.CANCELLED, "CANCELLED", 143),
        "1007": (JobState.FAILED, "FAILED", 181),
        "1008": (JobState.RUNNING, "RUNNING", None),
        "1004_0": (JobState.FAILED, "FAILED", 137),
        "1004_1": (JobState.FAILED, "FAILED", 137),
        "1004_2": (JobState.FAILED, "FAILED", 137),
    }


@pytest.mark.parametrize(
    ("line", "state", "code"),
    [
        ("7|OUT_OF_MEMORY|0:125", JobState.FAILED, 137),
        ("7|TIMEOUT|0:0", JobState.FAILED, 124),
        ("7|NODE_FAIL|0:0", JobState.FAILED, None),
        ("7|PREEMPTED|0:0", JobState.FAILED, None),
        ("7|CANCELLED+|0:15", JobState.CANCELLED, 143),
    ],
)
def test_failed_job_never_has_exit_code_zero(line, state, code):
    told = parse_sacct(line)["7"]
    assert (told.state, told.exit_code) == (state, code)


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_scontrol_output_is_parsed(version):
    assert parse_scontrol(recorded(f"scontrol-show-job-{version}.txt")) == JobStatus(
        state=JobState.FAILED,
        native="FAILED (NonZeroExitCode)",
        reason="it ended with an exit code other than 0",
        exit_code=3,
    )
    assert parse_scontrol("slurm_load_jobs error: Invalid job id specified\n") is None


@pytest.mark.parametrize(
    ("text", "code"), [("0:0", 0), ("3:0", 3), ("0:9", 137), ("0:15", 143), ("1:9", 137), ("", None), ("x", None)]
)
def test_exit_codes_follow_the_shell_convention(text, code):
    assert parse_exit_code(text) == code


@pytest.mark.parametrize("text", ["N/A", "", "Unknown", "2026-13-01T00:00:00"])
def test_invalid_times_are_none(text):
    assert parse_time(text) is None


def test_only_jobs_that_have_ended_have_an_exit_code():
    assert job_status("RUNNING", exit_code=0).exit_code is None
    assert job_status("FAILED", exit_code=2).exit_code == 2


def test_only_jobs_that_wait_have_an_expected_start():
    assert job_status("RUNNING", start="2026-01-15T10:15:00").expected_start is None
    assert job_status("PENDING", start="2026-01-15T10:15:00").expected_start is not None


def test_recorded_files_name_their_slurm_version():
    for path in RECORDED.iterdir():
        assert path.stem.rpartition("-")[2] in ("22.05", "24.11")
