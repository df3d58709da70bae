"""Talking to Slurm's tools: programs of ours first on PATH, which write down what they were asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.run_dir import RunDir
from echelon.schedulers import batch, slurm
from echelon.states import JobState

FAKE = """#!{python}
import json, os, sys
name = os.path.basename(sys.argv[0])
with open({log!r}, "a") as log:
    log.write(json.dumps({{"argv": [name, *sys.argv[1:]], "env": dict(os.environ)}}) + "\\n")
answer = {answers!r}.get(name, {{}})
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
sys.exit(answer.get("code", 0))
"""
TOOLS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
NO_ACCOUNTS = {"code": 1, "err": "Slurm accounting storage is disabled\n"}
DOWN = {"code": 1, "err": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "log"

    def answers(self, **answers):
        for tool in TOOLS:
            path = self.folder / tool
            path.write_text(FAKE.format(python=sys.executable, log=str(self.log), answers=answers))
            path.chmod(0o755)
        self.log.write_text("")

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def asked(self):
        return [call["argv"][0] for call in self.calls()]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    slurm._no_books.clear()
    yield Cluster(folder)
    slurm._no_books.clear()


def run(tmp_path, native_id, name="run"):
    run_dir = RunDir(tmp_path / name)
    run_dir.create()
    run_dir.native_id.write_text(f"{native_id:<63}\n")
    return run_dir


# Submitting


def test_the_script_is_submitted_and_its_id_read(cluster, tmp_path):
    cluster.answers(sbatch={"out": "1234\n"})
    run_dir = run(tmp_path, "")
    assert slurm.submit(run_dir, dict(os.environ)) == "1234"
    [call] = cluster.calls()
    assert call["argv"] == ["sbatch", "--parsable", str(run_dir.job_script)]


def test_nothing_of_an_outer_job_reaches_sbatch_and_everything_else_does(cluster, tmp_path):
    cluster.answers(sbatch={"out": "1\n"})
    leaked = {
        "SLURM_JOB_ID": "9", "SLURM_NNODES": "4", "SLURMD_NODENAME": "n1", "SBATCH_PARTITION": "x", "SRUN_DEBUG": "1",
        "PMI_RANK": "0", "PMIX_RANK": "0", "PMI2_X": "1", "SLURM_EXPORT_ENV": "NONE", "OMPI_COMM_WORLD_RANK": "1",
    }  # fmt: skip
    kept = {
        "SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_CLUSTERS": "far", "SLURM_JWT": "x", "HF_TOKEN": "a,b c",
        "LANG": "de_DE.UTF-8", "PMIRROR": "1", "ODD": "a,b='c' \"$d\"\nnext line",
    }  # fmt: skip
    slurm.submit(run(tmp_path, ""), {**os.environ, **leaked, **kept})
    environ = cluster.calls()[0]["env"]
    assert not set(leaked) & set(environ)
    assert {name: environ[name] for name in kept} == kept
    assert "LC_ALL" not in environ, "the job would inherit it"


def test_a_refusal_is_told_in_sbatchs_own_words(cluster, tmp_path):
    words = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed"
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError, match="Slurm refused the job") as caught:
        slurm.submit(run(tmp_path, ""), dict(os.environ))
    assert caught.value.why == words
    assert caught.value.origin.startswith("sbatch --parsable ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sbatch: error: invalid partition specified: nope", "sinfo"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "--cpu"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", "--account"),
        ("sbatch: fatal: Could not establish a configuration source", "--on local"),
    ],
)
def test_a_refusal_that_we_know_comes_with_what_to_try(cluster, tmp_path, words, hint):
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError) as caught:
        slurm.submit(run(tmp_path, ""), dict(os.environ))
    assert hint in caught.value.hint


@pytest.mark.parametrize("out", ["", "Submitted batch job 12\nthank you", "no id"])
def test_an_answer_without_an_id_is_nonsense(cluster, tmp_path, out):
    cluster.answers(sbatch={"out": out})
    with pytest.raises(SchedulerError, match="named no job"):
        slurm.submit(run(tmp_path, ""), dict(os.environ))


def test_a_controller_that_is_down_may_be_back_later(cluster, tmp_path):
    cluster.answers(
        sbatch={
            "code": 1,
            "err": "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        }
    )
    with pytest.raises(SchedulerUnreachable, match="Slurm does not answer") as caught:
        slurm.submit(run(tmp_path, ""), dict(os.environ))
    assert "connect failure" in caught.value.why


def test_a_tool_that_is_not_there_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="cannot run sbatch"):
        slurm.submit(run(tmp_path, ""), dict(os.environ))


def test_a_tool_that_does_not_answer_is_given_up(cluster):
    (cluster.folder / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    (cluster.folder / "squeue").chmod(0o755)
    with pytest.raises(SchedulerUnreachable, match="has not answered within"):
        slurm.TOOLS.ask(["squeue"], dict(os.environ), 0.2)


# Asking


def test_one_question_is_enough_for_living_jobs(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|RUNNING|2026-01-15T10:15:00|None\n8|PENDING|N/A|Priority\n"})
    first, second = slurm.query([run(tmp_path, "7", "a"), run(tmp_path, "8", "b")])
    assert (first.state, second.state) == (JobState.RUNNING, JobState.QUEUED)
    assert cluster.asked() == ["squeue"]
    assert "--jobs=7,8" in cluster.calls()[0]["argv"]


def test_nothing_of_the_users_taste_changes_the_question(cluster, tmp_path, monkeypatch):
    cluster.answers(squeue={"out": "7|RUNNING|N/A|None\n"})
    for name in ("SQUEUE_FORMAT", "SQUEUE_STATES", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SACCT_FORMAT"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/conf")
    slurm.query([run(tmp_path, "7")])
    environ = cluster.calls()[0]["env"]
    assert environ["LC_ALL"] == "C"
    assert [name for name in environ if name.startswith(("SQUEUE_", "SLURM_", "SACCT_"))] == ["SLURM_CONF"]


def test_jobs_that_left_the_queue_are_looked_up_in_the_books(cluster, tmp_path):
    cluster.answers(
        squeue={"code": 1, "err": "slurm_load_jobs error: Invalid job id specified\n"},
        sacct={"out": "7|OUT_OF_MEMORY|0:125\n"},
    )
    [status] = slurm.query([run(tmp_path, "7")])
    assert (status.state, status.native, status.exit_code) == (JobState.FAILED, "OUT_OF_MEMORY", 137)
    assert cluster.asked() == ["squeue", "sacct"]


def test_without_accounts_nobody_knows_a_job_that_left_the_queue(cluster, tmp_path):
    cluster.answers(squeue={"code": 1, "err": "slurm_load_jobs error: Invalid job id specified\n"}, sacct=NO_ACCOUNTS)
    run_dir = run(tmp_path, "7")
    assert slurm.query([run_dir]) == [None]
    assert slurm.query([run_dir]) == [None]
    assert cluster.asked() == ["squeue", "sacct", "squeue"], "there are no accounts, and that is asked once"


def test_the_controller_knows_how_a_job_ended_a_moment_ago(cluster, tmp_path):
    cluster.answers(
        squeue={"out": "7|FAILED|2026-01-15T10:15:00|NonZeroExitCode\n"},
        sacct=NO_ACCOUNTS,
        scontrol={"out": "JobId=7 JobState=FAILED Reason=NonZeroExitCode ExitCode=127:0 \n"},
    )
    [status] = slurm.query([run(tmp_path, "7")])
    assert (status.state, status.exit_code) == (JobState.FAILED, 127)


def test_books_that_call_a_job_alive_which_is_in_no_queue_are_wrong(cluster, tmp_path):
    cluster.answers(squeue={"code": 1, "err": "Invalid job id specified"}, sacct={"out": "7|RUNNING|0:0\n"})
    assert slurm.query([run(tmp_path, "7")]) == [None]


def test_books_that_cannot_be_opened_are_no_proof_that_a_job_is_gone(cluster, tmp_path):
    closed = {"code": 1, "err": "sacct: error: Problem talking to the database: Connection refused\n"}
    cluster.answers(squeue={"out": ""}, sacct=closed)
    run_dir = run(tmp_path, "7")
    with pytest.raises(SchedulerUnreachable):
        slurm.query([run_dir])
    cluster.answers(
        squeue={"out": "7|FAILED|N/A|NonZeroExitCode\n"}, sacct=closed, scontrol={"out": "JobState=FAILED ExitCode=2:0"}
    )
    assert slurm.query([run_dir])[0].exit_code == 2


def test_each_cluster_is_asked_about_its_own_jobs(cluster, tmp_path):
    cluster.answers(squeue={"out": "CLUSTER: far\n7|RUNNING|N/A|None\n"})
    statuses = slurm.query([run(tmp_path, "7;far", "a"), run(tmp_path, "7", "b")])
    assert [status.state for status in statuses] == [JobState.RUNNING, JobState.RUNNING]
    assert [call["argv"][1] for call in cluster.calls()] == ["--noheader", "--clusters=far"]


@pytest.mark.parametrize("native_id", ["", "not a job", "4194305 1"])
def test_a_run_without_a_job_of_slurm_is_not_asked_about(cluster, tmp_path, native_id):
    cluster.answers()
    assert slurm.query([run(tmp_path, native_id)]) == [None]
    assert cluster.asked() == []


def test_a_queue_that_cannot_be_read_is_no_proof_that_jobs_are_gone(cluster, tmp_path):
    cluster.answers(squeue=DOWN)
    run_dir = run(tmp_path, "7")
    with pytest.raises(SchedulerUnreachable):
        slurm.query([run_dir])
    cluster.answers(squeue={"code": 1, "err": "squeue: error: something else"})
    with pytest.raises(SchedulerError, match="did not say"):
        slurm.query([run_dir])


def test_thousands_of_jobs_are_asked_about_in_a_few_questions(cluster, tmp_path):
    cluster.answers(squeue={"out": ""}, sacct=NO_ACCOUNTS)
    asked = []
    ids = [str(number) for number in range(4500)]
    runs = [run(tmp_path, one, one) for one in ids]
    assert batch.query(runs, lambda some: asked.append(len(some)) or {}) == [None] * 4500
    assert asked == [2000, 2000, 500]


# Cancelling


def test_a_living_job_is_cancelled(cluster, tmp_path):
    cluster.answers(squeue={"out": "7_3|PENDING|N/A|Priority\n"})
    assert slurm.cancel(run(tmp_path, "7_3"))
    assert cluster.calls()[-1]["argv"] == ["scancel", "7_3"]


def test_a_supervisor_that_lives_is_told_alone_unless_it_was_told_before(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|RUNNING|N/A|None\n"})
    run_dir = run(tmp_path, "7")
    hold = "import sys, time; from echelon.node import lease; from pathlib import Path; lease.take(Path(sys.argv[1])); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hold, str(run_dir.lease)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"1\n"
        assert slurm.cancel(run_dir)
        assert cluster.calls()[-1]["argv"] == ["scancel", "--batch", "--signal=TERM", "7"]
        assert slurm.cancel(run_dir, again=True)
        assert cluster.calls()[-1]["argv"] == ["scancel", "7"]
        cluster.answers(squeue={"out": "7|PENDING|N/A|BeginTime\n"})
        assert slurm.cancel(run_dir)
        assert cluster.calls()[-1]["argv"] == ["scancel", "7"]
        holder.kill()


def test_a_job_that_has_ended_is_not(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|COMPLETED|N/A|None\n"}, sacct=NO_ACCOUNTS)
    assert not slurm.cancel(run(tmp_path, "7"))
    assert "scancel" not in cluster.asked()


def test_a_cancel_that_slurm_refuses_is_said(cluster, tmp_path):
    cluster.answers(
        squeue={"out": "7|RUNNING|N/A|None\n"}, scancel={"code": 1, "err": "scancel: error: Access/permission denied"}
    )
    with pytest.raises(SchedulerError, match="did not cancel") as caught:
        slurm.cancel(run(tmp_path, "7"))
    assert "permission denied" in caught.value.why


# How often


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0, 1), (9.9, 1), (10, 2), (19, 2), (30, 3), (100, 10), (299, 29.9), (300, 30), (1e6, 30)]
)
def test_the_scheduler_is_asked_ever_less_often(seconds, pause):
    assert slurm.pause(seconds) == pause


def test_recorded_output_names_the_version_it_is_of():
    for path in (Path(__file__).parent / "recorded").iterdir():
        assert path.stem.rpartition("-")[2] in ("22.05", "24.11")
