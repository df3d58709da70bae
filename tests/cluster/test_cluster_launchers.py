"""Every launcher on a real Slurm: training, stop notice and requeue, and one verdict for a failing rank."""

import json
import os
import shutil
import sys

import pytest

from running import SCRIPTS, wait_for
from slurm_story import SAVE, THREE_WAYS, TRAIN, finished, kill_rank, native_id
from taken import samples, steps, undisturbed

NO_MPI = shutil.which("mpirun") is None and "SKIP_NOTHING" not in os.environ
MPIRUN = pytest.param("mpirun", marks=pytest.mark.skipif(NO_MPI, reason="Open MPI is not installed"))
LAUNCHERS = ["torchrun", "accelerate", "legacy", "srun", MPIRUN]
BY_TORCHRUN = ("accelerate", "legacy")  # which is what they start the ranks with: one on each node shows the rest
SIZE = ["-N", "2", "--procs-per-node", "2"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_run_stopped_by_notice_resumes_at_its_step(cluster, echelon, launcher):
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
def test_preempted_run_continues(cluster, echelon, launcher, exactly):
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
def test_failing_rank_gives_one_verdict(echelon, launcher):
    result = echelon("run", *SIZE, "--launcher", launcher, TRAIN, "--fail", "3", timeout=140)
    assert result.returncode == 1
    assert "rank 3 on n2 raised ValueError: this rank was told to fail" in result.stderr
    assert result.stderr.count("Traceback (most recent call last)") == 1
    error = json.loads((echelon.only_run().path / "attempt-0" / "error.json").read_text())
    assert (error["rank"], error["host"], error["error"]["type"]) == (3, "n2", "ValueError")


def test_c10d_torchruns_restart_after_a_killed_rank(cluster, echelon):
    """The launcher may number the nodes in any order; ranks keep their assigned places."""
    go, state = echelon.folder / "go", echelon.folder / "state"
    flags = [*SIZE, "--launcher", "torchrun", "--rdzv", "c10d", "--restarts", "1"]
    run = echelon.submit(*flags, TRAIN, "--samples", "24", "--wait-for", go, "--state", state)
    wait_for(lambda: len(steps(run, 3)) > 3, "a few steps", 90)
    kill_rank(cluster, run, 3)
    wait_for(lambda: run.events("generation")[1:], "the next generation", 90)
    go.touch()
    finished(run, "succeeded", 120)
    (fault,) = run.events("fault")
    assert fault["fault"].startswith("rank 3 on n2 was killed by SIGKILL")
    assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"]] * 2
    assert [f"on {'n1' if rank < 2 else 'n2'} with" in run.rank_log(rank) for rank in range(4)] == [True] * 4


@pytest.mark.parametrize("launcher", ["ranks", "torchrun", "srun", MPIRUN])
def test_world_is_the_same_for_every_source_of_the_rank(echelon, launcher):
    """Scripts that read SLURM_*, RANK, or both, PyG's way, and Lightning.

    `variables` uses the rendezvous of the launcher, which one process can use only once. The others open their own,
    which is not possible under torchrun.
    """
    sources = ["both"] if launcher == "torchrun" else ["slurm", "variables", "both"]
    sources += ["pyg", "lightning"] if launcher == "ranks" else []
    flags = [*SIZE, "--cpus", "4", "--launcher", launcher]
    own_port = () if launcher == "torchrun" else ("--own-port",)
    result = echelon("run", *flags, THREE_WAYS, ",".join(sources), *own_port, timeout=140)
    assert result.returncode == 0, result.stderr + result.stdout
    lines = [line.partition("] ")[2] for line in result.stdout.splitlines()]
    for source in sources:
        cpus = "-" if source != "slurm" else "None" if launcher == "mpirun" else "2"
        expected = [f"{source} {rank} 4 {rank % 2} {rank // 2} {cpus} 10" for rank in range(4)]
        assert sorted(line for line in lines if line.startswith(f"{source} ")) == expected
    assert "own step 0 of 1" in lines


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
    assert fault["fault"] == "lost n2: no heartbeat for 4 s"


def test_torchrun_on_hosts_that_share_nothing(echelon):
    hosts = ["--on", "ssh", "--hosts", "h1,h2", "--python", sys.executable, "-g", "2"]
    result = echelon("run", *hosts, "--launcher", "torchrun", SCRIPTS / "env_init.py", timeout=140)
    assert result.returncode == 0, result.stderr
    facts = [json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines() if "] {" in line]
    assert {fact["rank"]: fact["host"] for fact in facts} == {0: "h1", 1: "h1", 2: "h2", 3: "h2"}
