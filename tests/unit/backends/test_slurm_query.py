"""Queries of Slurm: commands, their number, and missing answers."""

import os

import pytest
from slurm_on_path import DOWN, NO_ACCOUNTS, run

from echelon.backends import batch_tools
from echelon.backends.slurm import control
from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.states import JobState


def test_one_query_covers_live_jobs(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|RUNNING|2026-01-15T10:15:00|None\n8|PENDING|N/A|Priority\n"})
    first, second = control.query([run(tmp_path, "7", "a"), run(tmp_path, "8", "b")])
    assert (first.state, second.state) == (JobState.RUNNING, JobState.QUEUED)
    assert cluster.asked() == ["squeue"]
    assert "--jobs=7,8" in cluster.calls()[0]["argv"]


def test_user_format_variables_do_not_change_the_query(cluster, tmp_path, monkeypatch):
    cluster.answers(squeue={"out": "7|RUNNING|N/A|None\n"})
    for name in ("SQUEUE_FORMAT", "SQUEUE_STATES", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SACCT_FORMAT"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/conf")
    control.query([run(tmp_path, "7")])
    environ = cluster.calls()[0]["env"]
    assert environ["LC_ALL"] == "C"
    assert [name for name in environ if name.startswith(("SQUEUE_", "SLURM_", "SACCT_"))] == ["SLURM_CONF"]


def test_jobs_not_in_queue_are_read_from_accounting(cluster, tmp_path):
    cluster.answers(
        squeue={"code": 1, "err": "slurm_load_jobs error: Invalid job id specified\n"},
        sacct={"out": "7|OUT_OF_MEMORY|0:125\n"},
    )
    [status] = control.query([run(tmp_path, "7")])
    assert (status.state, status.native, status.exit_code) == (JobState.FAILED, "OUT_OF_MEMORY", 137)
    assert cluster.asked() == ["squeue", "sacct"]


def test_without_accounting_an_old_job_is_unknown(cluster, tmp_path):
    cluster.answers(squeue={"code": 1, "err": "slurm_load_jobs error: Invalid job id specified\n"}, sacct=NO_ACCOUNTS)
    run_dir = run(tmp_path, "7")
    assert control.query([run_dir]) == [None]
    assert control.query([run_dir]) == [None]
    assert cluster.asked() == ["squeue", "sacct", "squeue"], "there are no accounts, and that is asked once"


def test_controller_reports_a_recent_end(cluster, tmp_path):
    cluster.answers(
        squeue={"out": "7|FAILED|2026-01-15T10:15:00|NonZeroExitCode\n"},
        sacct=NO_ACCOUNTS,
        scontrol={"out": "JobId=7 JobState=FAILED Reason=NonZeroExitCode ExitCode=127:0 \n"},
    )
    [status] = control.query([run(tmp_path, "7")])
    assert (status.state, status.exit_code) == (JobState.FAILED, 127)


def test_accounting_of_running_job_not_in_queue_is_ignored(cluster, tmp_path):
    cluster.answers(squeue={"code": 1, "err": "Invalid job id specified"}, sacct={"out": "7|RUNNING|0:0\n"})
    assert control.query([run(tmp_path, "7")]) == [None]


def test_unreachable_accounting_does_not_end_the_run(cluster, tmp_path):
    closed = {"code": 1, "err": "sacct: error: Problem talking to the database: Connection refused\n"}
    cluster.answers(squeue={"out": ""}, sacct=closed)
    run_dir = run(tmp_path, "7")
    with pytest.raises(SchedulerUnreachable):
        control.query([run_dir])
    cluster.answers(
        squeue={"out": "7|FAILED|N/A|NonZeroExitCode\n"}, sacct=closed, scontrol={"out": "JobState=FAILED ExitCode=2:0"}
    )
    assert control.query([run_dir])[0].exit_code == 2


def test_each_cluster_is_queried_for_its_own_jobs(cluster, tmp_path):
    cluster.answers(squeue={"out": "CLUSTER: far\n7|RUNNING|N/A|None\n"})
    statuses = control.query([run(tmp_path, "7;far", "a"), run(tmp_path, "7", "b")])
    assert [status.state for status in statuses] == [JobState.RUNNING, JobState.RUNNING]
    assert [call["argv"][1] for call in cluster.calls()] == ["--noheader", "--clusters=far"]


@pytest.mark.parametrize("native_id", ["", "not a job", "4194305 1"])
def test_run_without_slurm_id_is_not_queried(cluster, tmp_path, native_id):
    cluster.answers()
    assert control.query([run(tmp_path, native_id)]) == [None]
    assert cluster.asked() == []


def test_unreadable_queue_does_not_end_the_run(cluster, tmp_path):
    cluster.answers(squeue=DOWN)
    run_dir = run(tmp_path, "7")
    with pytest.raises(SchedulerUnreachable):
        control.query([run_dir])
    cluster.answers(squeue={"code": 1, "err": "squeue: error: something else"})
    with pytest.raises(SchedulerError, match="did not report the state"):
        control.query([run_dir])


def test_thousands_of_jobs_need_few_queries(cluster, tmp_path):
    cluster.answers(squeue={"out": ""}, sacct=NO_ACCOUNTS)
    asked = []
    ids = [str(number) for number in range(4500)]
    runs = [run(tmp_path, one, one) for one in ids]
    assert batch_tools.query_runs(runs, lambda some: asked.append(len(some)) or {}) == [None] * 4500
    assert asked == [2000, 2000, 500]


def test_tool_without_answer_times_out(cluster):
    (cluster.folder / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    (cluster.folder / "squeue").chmod(0o755)
    with pytest.raises(SchedulerUnreachable, match="has not answered within"):
        control.TOOLS.run(["squeue"], dict(os.environ), 0.2)


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0, 1), (9.9, 1), (10, 2), (19, 2), (30, 3), (100, 10), (299, 29.9), (300, 30), (1e6, 30)]
)
def test_query_interval_grows(seconds, pause):
    assert batch_tools.query_interval(seconds) == pause
