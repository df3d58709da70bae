"""Runs over ssh beyond their time limit, and two runs on the same hosts."""

import sys
from pathlib import Path

import pytest

from cluster import Cluster
from running import SCRIPTS, wait_for
from taken import samples, undisturbed
from tool import Tool

STEPS = SCRIPTS / "steps.py"
SAVE = Path(__file__).parent / "scripts" / "save.py"
ON = ("--on", "ssh", "--hosts", "h1,h2", "--python", sys.executable)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nodes=0, ssh_hosts=2) as up:
        yield up


def test_the_time_limit_with_notice_checkpoint_and_resume(cluster):
    """In a folder that the hosts share: checkpoints are to be found by the next attempt."""
    tool = Tool(cluster, cluster.make_folder(cluster.scratch))
    policy = ("--time", "60s", "--notice", "42s", "--requeues", "6")
    run = tool.submit(*ON, *policy, SAVE, "--samples", "160", "--seconds", "0.2")
    assert wait_for(lambda: run.events("finished"), "the end of the run", 140)[0]["outcome"] == "succeeded"
    attempts = len(run.events("started"))
    assert attempts >= 2
    assert {event["attempt"] for event in run.events("notice")} >= set(range(attempts - 1))
    assert all(event["reason"] == "the ranks stopped in time" for event in run.events("requeued"))
    assert samples(run, 2, attempts) == undisturbed(160)


def test_two_runs_on_the_same_hosts_at_once(cluster, echelon):
    runs = [echelon.submit(*ON, "-g", "2", "--cold", STEPS, "--steps", "80", "--seconds", "0.1") for _ in range(2)]
    for run in runs:
        wait_for(lambda run=run: "step 2\n" in run.rank_log(3), "rank 3 to take steps")
    assert [run.events("finished") for run in runs] == [[], []], "both at once"
    for run in runs:
        assert run.wait()["outcome"] == "succeeded"
        assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"]]
    met = {(event["address"], event["port"]) for run in runs for event in run.events("generation")}
    assert len(met) == 2, "each at a place of its own"
