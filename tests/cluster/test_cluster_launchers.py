"""Every launcher on a real Slurm: it trains, is stopped by notice and requeued, and a failing rank is one verdict."""

import json
import os
import shutil
import sys

import pytest

from running import SCRIPTS, wait_for
from slurm_story import SAVE, TRAIN, finished, kill_rank, native_id
from taken import samples, steps, undisturbed

NO_MPI = shutil.which("mpirun") is None and "SKIP_NOTHING" not in os.environ
MPIRUN = pytest.param("mpirun", marks=pytest.mark.skipif(NO_MPI, reason="Open MPI is not installed"))
LAUNCHERS = ["torchrun", "accelerate", "legacy", "srun", MPIRUN]
BY_TORCHRUN = ("accelerate", "legacy")  # which is what they start the ranks with: one on each node shows the rest
SIZE = ["-N", "2", "--procs-per-node", "2"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_run_is_stopped_by_notice_and_goes_on_where_it_was(cluster, echelon, launcher):
    state = echelon.folder / "state"
    ranks, size = (2, SIZE[:2]) if launcher in BY_TORCHRUN else (4, SIZE)
    flags = [*size, "--launcher", launcher, "--requeues", "1"]
    run = echelon.submit(*flags, TRAIN, "--samples", str(50 * ranks), "--state", state)
    wait_for(lambda: len(steps(run, ranks - 1)) > 3, "a few steps", 90)
    cluster.run("ctl", ["scancel", "--batch", "--signal=USR1", native_id(run)])
    finished(run, "succeeded", 120)
    (requeued,) = run.events("requeued")
    assert requeued["reason"] == "the ranks stopped in time"
    assert run.events("fault") == []
    assert samples(run, ranks, 2) == undisturbed(50 * ranks)


@pytest.mark.parametrize(("launcher", "exactly"), [("torchrun", True), ("srun", False)])
def test_a_preempted_run_comes_back(cluster, echelon, launcher, exactly):
    """Slurm's TERM does not reach torchrun, and ranks save in their grace; srun kills them at once."""
    size = ["-N", "2", "-p", "low", "--launcher", launcher]
    run = echelon.submit(*size, SAVE, "--samples", "120", "--seconds", "0.1")
    wait_for(lambda: len(steps(run, 1)) > 3, "a few steps", 90)
    cluster.run("ctl", ["sbatch", "-p", "high", "-N4", "--exclusive", "--wrap", "sleep 1"])
    requeued = wait_for(lambda: run.events("requeued"), "the requeue", 90)[0]
    assert requeued["counts"] is False
    finished(run, "succeeded", 120)
    assert run.events("fault") == []
    if exactly:
        assert samples(run, 2, 2) == undisturbed(120)


@pytest.mark.parametrize("launcher", ["torchrun", "srun", MPIRUN])
def test_a_failing_rank_is_one_verdict(echelon, launcher):
    result = echelon("run", *SIZE, "--launcher", launcher, TRAIN, "--fail", "3", timeout=140)
    assert result.returncode == 1
    assert "rank 3 on n2 raised ValueError: this rank was told to fail" in result.stderr
    assert result.stderr.count("Traceback (most recent call last)") == 1
    error = json.loads((echelon.only_run().path / "attempt-0" / "error.json").read_text())
    assert (error["rank"], error["host"], error["error"]["type"]) == (3, "n2", "ValueError")


def test_torchruns_that_agree_by_c10d_start_again_after_a_killed_rank(cluster, echelon):
    """Among themselves they may number the nodes either way; ranks are where they were decided to be."""
    go, state = echelon.folder / "go", echelon.folder / "state"
    flags = [*SIZE, "--launcher", "torchrun", "--rdzv", "c10d", "--restarts", "1"]
    run = echelon.submit(*flags, TRAIN, "--samples", "24", "--wait-for", go, "--state", state)
    wait_for(lambda: len(steps(run, 3)) > 3, "a few steps", 90)
    kill_rank(cluster, run, 3)
    wait_for(lambda: run.events("generation")[1:], "the next generation", 90)
    go.touch()
    finished(run, "succeeded", 120)
    (fault,) = run.events("fault")
    assert fault["fault"] == "rank 3 on n2 was killed by SIGKILL"
    assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"]] * 2
    assert [f"on {'n1' if rank < 2 else 'n2'} with" in run.rank_log(rank) for rank in range(4)] == [True] * 4


@pytest.mark.parametrize("launcher", ["srun", MPIRUN])
def test_a_script_that_knows_nothing_of_us_finds_its_rank(echelon, launcher):
    result = echelon("run", *SIZE, "--launcher", launcher, SCRIPTS / "env_init.py", timeout=140)
    assert result.returncode == 0, result.stderr
    facts = [json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines() if "] {" in line]
    assert sorted(fact["rank"] for fact in facts) == [0, 1, 2, 3]
    assert {fact["rank"]: fact["host"] for fact in facts} == {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
    assert all(fact["sum"] == 4 and fact["told"] == fact["rank"] for fact in facts)


@pytest.mark.parametrize("launcher", ["srun", MPIRUN])
def test_a_lost_node_is_replaced_under_a_launcher_of_all_nodes(cluster, echelon, launcher):
    go = echelon.folder / "go"
    options = [*SIZE, "--spare-nodes", "1", "--heartbeat", "4s", "--launcher", launcher]
    run = echelon.submit(*options, TRAIN, "--samples", "24", "--wait-for", go, "--state", echelon.folder / "state")
    wait_for(lambda: len(steps(run, 3)) > 3, "a few steps", 90)
    cluster.power_off("n2")
    generation = wait_for(lambda: run.events("generation")[1:], "the next generation", 90)[0]
    assert generation["hosts"] == ["n1", "n3"]
    go.touch()
    finished(run, "succeeded", 120)
    (fault,) = run.events("fault")
    assert fault["fault"] == "n2 was lost: it fell silent"


def test_torchrun_on_hosts_that_share_nothing(echelon):
    hosts = ["--on", "ssh", "--hosts", "h1,h2", "--python", sys.executable, "-g", "2"]
    result = echelon("run", *hosts, "--launcher", "torchrun", SCRIPTS / "env_init.py", timeout=140)
    assert result.returncode == 0, result.stderr
    facts = [json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines() if "] {" in line]
    assert {fact["rank"]: fact["host"] for fact in facts} == {0: "h1", 1: "h1", 2: "h2", 3: "h2"}
