"""Runs on PBS that outlast a cut link, a lost host and their time limit."""

from pathlib import Path

from node import wait_for
from running import SCRIPTS
from taken import samples, undisturbed

STEPS = SCRIPTS / "steps.py"
SAVE = Path(__file__).parent / "scripts" / "save.py"


def test_a_link_that_is_cut_for_three_seconds_costs_nothing(cluster, echelon, pbs):
    run = echelon.submit("-N", "2", "--heartbeat", "10s", "--cold", STEPS, "--steps", "60", "--seconds", "0.1")
    wait_for(lambda: "step 3\n" in run.rank_log(1), "rank 1 to take steps")
    cluster.cut("n2")
    cluster.run("ctl", ["sleep", "3"])
    cluster.heal("n2")
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("generation")) == 1
    assert run.events("fault") == []


def test_without_a_spare_the_run_goes_on_smaller(cluster, echelon, pbs):
    run = echelon.submit(
        "-N", "2", "--min-nodes", "1", "--heartbeat", "3s", "--cold",
        STEPS, "--steps", "60", "--seconds", "0.1",
    )  # fmt: skip
    wait_for(lambda: "step 3\n" in run.rank_log(1), "rank 1 to take steps")
    cluster.power_off("n2")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"], ["n1"]]
    assert "n2 was lost: it fell silent" in run.events("fault")[0]["fault"]
    assert list(pbs.jobs) == ["0.ctl"]


def test_the_time_limit_with_notice_checkpoint_successor_and_resume(echelon, pbs):
    policy = ("--time", "60s", "--notice", "36s", "--requeues", "6")
    run = echelon.submit("-N", "2", *policy, SAVE, "--samples", "160", "--seconds", "0.2")
    assert wait_for(lambda: run.events("finished"), "the end of the run", 140)[0]["outcome"] == "succeeded"
    attempts = len(run.events("started"))
    assert attempts >= 2
    assert len(pbs.jobs) == attempts
    assert all(event["reason"] == "the ranks stopped in time" for event in run.events("requeued"))
    assert samples(run, 2, attempts) == undisturbed(160)
