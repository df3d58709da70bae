"""Lost ranks and nodes on a real Slurm: the run continues, or the verdict names the failure."""

import json

import pytest

from running import wait_for
from slurm_story import SAVE, TRAIN, finished, kill_rank, waiting
from taken import samples, undisturbed


def test_failing_rank_gives_the_verdict(echelon):
    result = echelon("run", "-N", "2", "--procs-per-node", "2", TRAIN, "--fail", "3")
    assert result.returncode == 1
    assert "rank 3 on n2 raised ValueError: this rank was told to fail" in result.stderr
    why = echelon("why", echelon.only_run().id)
    assert "rank 3 on n2" in why.stdout


def test_killed_rank_uses_one_generation_only(cluster, echelon):
    go = echelon.folder / "go"
    options = ["-N", "2", "--procs-per-node", "2", "--restarts", "1"]
    run = echelon.submit(*options, TRAIN, "--samples", "24", "--wait-for", go, "--state", echelon.folder / "state")
    waiting(run)
    kill_rank(cluster, run, 2)
    wait_for(lambda: len(run.events("generation")) == 2, "the next generation")
    go.touch()
    finished(run, "succeeded")
    (fault,) = run.events("fault")
    assert fault["fault"].startswith("rank 2 on n2 was killed by SIGKILL")


@pytest.mark.parametrize("way", ["spare", "smaller"])
def test_powerless_node_is_replaced(cluster, echelon, way):
    go = echelon.folder / "go"
    room = ["--spare-nodes", "1"] if way == "spare" else ["--min-nodes", "1"]
    options = ["-N", "2", *room, "--procs-per-node", "2", "--heartbeat", "4s"]
    run = echelon.submit(*options, TRAIN, "--samples", "24", "--wait-for", go, "--state", echelon.folder / "state")
    waiting(run)
    (cluster.power_off if way == "spare" else cluster.shut_down)("n2")
    generation = wait_for(lambda: run.events("generation")[1:], "the next generation")[0]
    assert generation["hosts"] == (["n1", "n3"] if way == "spare" else ["n1"])
    go.touch()
    finished(run, "succeeded")
    (fault,) = run.events("fault")
    assert fault["fault"] == f"lost n2: {'no heartbeat for 4 s' if way == 'spare' else 'its agent died'}"


def test_powerless_node_without_a_replacement(cluster, echelon):
    """The next attempt gets other nodes."""
    go = echelon.folder / "go"
    options = ["-N", "2", "--requeues", "1", "--heartbeat", "4s"]
    run = echelon.submit(*options, TRAIN, "--samples", "20", "--wait-for", go, "--state", echelon.folder / "state")
    waiting(run)
    cluster.power_off("n2")
    wait_for(lambda: run.events("requeued"), "the requeue")
    go.touch()
    finished(run, "succeeded")
    assert [event["attempt"] for event in run.events("started")] == [0, 1]
    hosts = [event["hosts"] for event in run.events("generation")]
    assert hosts[0] == ["n1", "n2"]
    assert "n2" not in hosts[1]


def test_link_cut_for_three_seconds_has_no_effect(cluster, echelon):
    run = echelon.submit("-N", "2", "--heartbeat", "10s", TRAIN, "--samples", "60")
    waiting(run)
    cluster.cut("n2")
    cluster.run("ctl", ["sleep", "3"])
    cluster.heal("n2")
    finished(run, "succeeded")
    assert len(run.events("generation")) == 1
    assert run.events("fault") == []


def test_run_continues_after_the_first_node_is_lost(cluster, echelon):
    """The supervisor is lost. The job is requeued on other nodes."""
    go = echelon.folder / "go"
    state = echelon.folder / "state"
    options = ["-N", "2", "--heartbeat", "4s", "--requeues", "1"]
    run = echelon.submit(*options, TRAIN, "--samples", "20", "--wait-for", go, "--state", state)
    waiting(run)
    before = json.loads(state.read_text())["consumed"]
    cluster.power_off("n1")
    wait_for(lambda: len(run.events("started")) == 2, "the next attempt", 90)
    go.touch()
    finished(run, "succeeded")
    assert "n1" not in run.events("generation")[-1]["hosts"]
    assert f"from {before}" in run.rank_log(0, attempt=1)


def test_cut_off_first_node_commits_no_checkpoint(cluster, echelon):
    """Its supervisor ends its processes, although it can still write to the run's folder. The job is requeued elsewhere."""
    options = ["-N", "2", "--heartbeat", "4s", "--requeues", "1"]
    run = echelon.submit(*options, SAVE, "--samples", "160", "--seconds", "0.1")
    wait_for(lambda: "step 12 " in run.rank_log(0), "a checkpoint")
    cluster.cut("n1")
    began = wait_for(lambda: run.events("started")[1:], "the next attempt", 90)[0]["time"]
    finished(run, "succeeded")
    assert "n1" not in run.events("generation")[-1]["hosts"]
    reasons = [event["reason"] for event in run.events("requeued")]  # the agents tell of it, too, and may be first
    assert any("n1 is cut off" in reason for reason in reasons), reasons
    ours = [process for process in cluster.processes("n1") if "save.py" in process.command]
    assert ours == [], "ranks of a supervisor that nobody hears"
    assert {event["attempt"] for event in run.events("checkpoint") if event["time"] > began} == {1}
    (saved,) = [int(line.split()[1]) for line in run.rank_log(0, attempt=1).splitlines() if line.startswith("from ")]
    assert saved > 0
    assert samples(run, 2, 2)[2 * saved - 160 :] == undisturbed(160)[2 * saved :]
