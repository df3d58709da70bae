"""Status of a run without new events, from Slurm: queued, requeued, ended, or Slurm does not answer."""

import json
import signal

import pytest

from node import wait_for
from running import Run

HELLO = "import os; print('hello from rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"
WAIT = "import time; print('waiting', flush=True); time.sleep(600)\n"


@pytest.fixture
def hello(echelon):
    return echelon.script("hello.py", HELLO)


@pytest.fixture
def wait(echelon):
    return echelon.script("wait.py", WAIT)


@pytest.fixture
def busy(cluster):
    """Another job uses every node until the end of the test."""
    argv = ["sbatch", "--parsable", "-N4", "--exclusive", "--time=10", "-o", "/dev/null", "--wrap=sleep 600"]
    job = cluster.run("ctl", argv).stdout.strip()
    wait_for(lambda: set(cluster.states().values()) == {"allocated"}, "all nodes to be taken")
    yield job
    cluster.run("ctl", ["scancel", job])


def state(run):
    return run.status()["state"]


def wait_until(run, wanted, seconds=60):
    wait_for(lambda: state(run) == wanted, f"{run.id} to be {wanted}", seconds)


def wait_until_at_work(run, attempt=0):
    wait_for(lambda: "waiting" in run.rank_log(0, attempt), f"rank 0 of {run.id} to be at work", 90)
    assert state(run) == "RUNNING"


# Waiting


def test_queue_reason_and_expected_start_are_shown(echelon, hello, busy, cluster):
    follower = echelon.start("run", "--cpu", "-p", "main", hello)
    said = ""
    while "waiting for nodes to become free; expected to start" not in said:
        said += follower.stderr.readline()
    run = echelon.only_run()
    status = run.status()
    assert (status["state"], status["native"]) == ("QUEUED", "PENDING (Resources)")
    assert status["expected_start"] is not None
    cluster.run("ctl", ["scancel", busy])
    assert follower.wait(timeout=60) == 0
    follower.communicate()


# Ends that only Slurm tells of


def test_queued_run_is_cancelled(echelon, hello, busy, cluster):
    run = echelon.submit("--cpu", hello)
    result = echelon("cancel", run.id)
    assert result.returncode == 0, result.stderr
    status = run.status()
    assert (status["state"], status["reason"]) == ("CANCELLED", "cancelled before it started")
    assert status["native_id"] not in cluster.jobs()


def test_queued_run_cancelled_by_scancel_is_cancelled(echelon, hello, busy, cluster):
    follower = echelon.start("run", "--cpu", hello)
    wait_for(lambda: list((echelon.folder / "runs").glob("*/native_id")), "the run")
    run = echelon.only_run()
    wait_until(run, "QUEUED")
    cluster.run("ctl", ["scancel", run.status()["native_id"]])
    _, said = follower.communicate(timeout=60)
    assert follower.returncode == 143
    assert "cancelled before it started" in said


def test_verdict_reports_a_script_that_could_not_start(echelon, hello):
    result = echelon("run", "--cpu", "--python", "/nope/python", hello)
    assert result.returncode == 127
    assert "warning: no Python at /nope/python on this machine" in result.stderr
    assert "it ended with exit code 127" in result.stderr
    assert "/nope/python: not found" in result.stderr


def test_requeued_run_waits_in_the_queue_again(echelon, wait, cluster):
    run = echelon.submit("--cpu", wait)
    wait_until_at_work(run)
    job = run.status()["native_id"]
    cluster.run("ctl", ["scontrol", "requeue", job])
    what = f"{run.id} to wait in Slurm's queue"  # until Slurm has ended it, the run itself gives the reason
    status = wait_for(lambda: "has not been reached" in ((now := run.status())["reason"] or "") and now, what)
    assert status["state"] == "REQUEUED"
    wait_until_at_work(run, attempt=1)
    assert run.status()["attempt"] == 1
    assert echelon("cancel", run.id).returncode == 0


# Arrays


def test_array_is_one_job_with_a_run_for_each_index(echelon):
    script = echelon.script(
        "task.py", "import os, sys; i = os.environ['SLURM_ARRAY_TASK_ID']; print('task', i); sys.exit(i == '3')\n"
    )
    result = echelon("run", "--cpu", "--array", "1-3%2", script)
    assert result.returncode == 1
    assert sorted(result.stdout.splitlines()) == ["1[0] task 1", "2[0] task 2", "3[0] task 3"]
    listed = json.loads(echelon("ls", "--json", "-n", "3").stdout)
    assert [run["state"] for run in listed] == ["SUCCEEDED", "SUCCEEDED", "FAILED"]
    assert len({run["native_id"].partition("_")[0] for run in listed}) == 1
    again = echelon("resume", listed[2]["run_id"])
    assert (again.returncode, again.stdout) == (1, "[0] task 3\n")


def test_a_pending_array_is_cancelled_by_its_own_id(echelon, wait, busy):
    result = echelon("submit", "--cpu", "--array", "0-2", wait)
    array = result.stdout.split()[0].rpartition("-")[0]
    assert f"echelon cancel {array} cancels all of it" in result.stderr
    assert echelon("cancel", array).returncode == 0
    assert {run["state"] for run in json.loads(echelon("ls", "--json", "-n", "3").stdout)} == {"CANCELLED"}


def test_a_running_array_is_cancelled_by_its_job_id(echelon, wait):
    """One element runs and two wait for it: scancel then signals the first and exits with 229."""
    run = Run(echelon, echelon("submit", "--cpu", "--array", "0-2%1", wait).stdout.split()[0])
    wait_until_at_work(run)
    number = (run.path / "native_id").read_text().strip().partition("_")[0]
    done = echelon("cancel", number)
    assert (done.returncode, done.stderr.count("is CANCELLED")) == (0, 3), done.stderr
    assert {run["state"] for run in json.loads(echelon("ls", "--json", "-n", "3").stdout)} == {"CANCELLED"}


# Without the controller


def test_controller_that_is_down_is_reported_and_ends_nothing(echelon, wait, cluster):
    run = echelon.submit("--cpu", wait)
    wait_until_at_work(run)
    cluster.stop_controller()
    status = run.status()
    assert (status["state"], status["reason"]) == ("RUNNING", "last known state (Slurm does not answer)")
    refused = echelon("submit", "--cpu", wait)
    assert refused.returncode == 75
    assert "Slurm does not answer" in refused.stderr
    cluster.start_controller()
    wait_for(lambda: run.status()["reason"] == "", "Slurm to answer again")
    assert echelon("cancel", run.id).returncode == 0


def test_ctrl_c_without_a_terminal_cancels(echelon, wait):
    follower = echelon.start("run", "--cpu", wait)
    assert follower.stdout.readline() == "[0] waiting\n"
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=60)
    assert follower.returncode == 143
