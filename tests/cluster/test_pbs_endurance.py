"""Runs on PBS that continue after a cut link, a lost host and their time limit."""

from pathlib import Path

from node import wait_for
from running import SCRIPTS
from taken import samples, undisturbed

STEPS = SCRIPTS / "steps.py"
SAVE = Path(__file__).parent / "scripts" / "save.py"


def test_link_cut_for_three_seconds_has_no_effect(cluster, echelon, pbs):
    run = echelon.submit("-N", "2", "--heartbeat", "10s", "--cold", STEPS, "--steps", "60", "--seconds", "0.1")
    wait_for(lambda: "step 3\n" in run.rank_log(1), "rank 1 to take steps")
    cluster.cut("n2")
    cluster.run("ctl", ["sleep", "3"])
    cluster.heal("n2")
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("generation")) == 1
    assert run.events("fault") == []


def test_run_without_spare_continues_with_fewer_nodes(cluster, echelon, pbs):
    run = echelon.submit(
        "-N",
        "2",
        "--min-nodes",
        "1",
        "--heartbeat",
        "3s",
        "--cold",
        STEPS,
        "--steps",
        "60",
        "--seconds",
        "0.1",
    )
    wait_for(lambda: "step 3\n" in run.rank_log(1), "rank 1 to take steps")
    cluster.power_off("n2")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"], ["n1"]]
    assert run.events("fault")[0]["fault"] == "lost n2: no heartbeat for 3 s"
    assert list(pbs.jobs) == ["0.ctl"]


def test_time_limit_gives_notice_checkpoint_successor_and_resume(echelon, pbs):
    policy = ("--time", "60s", "--notice", "36s", "--requeues", "20")  # on a busy machine an attempt does few steps
    run = echelon.submit("-N", "2", *policy, SAVE, "--samples", "160", "--seconds", "0.2")
    assert wait_for(lambda: run.events("finished"), "the end of the run", 140)[0]["outcome"] == "succeeded"
    attempts = len(run.events("started"))
    assert attempts >= 2
    assert len(pbs.jobs) == attempts
    assert all(event["reason"] == "the ranks stopped in time" for event in run.events("requeued"))
    assert samples(run, 2, attempts) == undisturbed(160)
