"""Nodes that a run must not get again, on a real Slurm: those that it lost, and those that its user left out."""

from pathlib import Path

from echelon import hostlist, scontrol
from running import wait_for

TRAIN = Path(__file__).parent / "scripts" / "train.py"
OPTIONS = ("-N", "2", "--requeues", "1", "--heartbeat", "4s", "--exclude", "n4")


def submit(echelon):
    return echelon.submit(*OPTIONS, TRAIN, "--samples", "600", "--state", echelon.folder / "state")


def native_id(run):
    return (run.path / "native_id").read_text().strip()


def waits_without(cluster, run, *names):
    def left_out():
        line = cluster.run("ctl", ["scontrol", "show", "job", native_id(run), "-o"]).stdout
        return sorted(hostlist.expand(scontrol.fields_of(line)["ExcNodeList"]))

    wait_for(lambda: left_out() == sorted(names), f"{names} to be left out")
    cluster.run("ctl", ["scancel", native_id(run)])
    wait_for(lambda: not cluster.jobs(), "the job to leave the queue")


def test_a_lost_node_is_left_out_and_what_the_user_left_out_stays_so(cluster, echelon):
    run = submit(echelon)
    wait_for(lambda: "step 3 " in run.rank_log(0), "step 3 of rank 0")
    cluster.power_off("n2")
    requeued = wait_for(lambda: run.events("requeued"), "the requeue", 90)
    assert requeued[0]["lost_hosts"] == ["n2"]
    waits_without(cluster, run, "n2", "n4")


def test_a_first_node_that_was_lost_once_is_left_out_from_the_next_requeue_on(cluster, echelon):
    """Before, Slurm lets nobody change the job until all are gone who could; the node is down then in any case."""
    run = submit(echelon)
    wait_for(lambda: "step 3 " in run.rank_log(0), "step 3 of rank 0")
    cluster.power_off("n1")
    requeued = wait_for(lambda: run.events("requeued"), "the requeue", 90)
    assert requeued[0]["lost_hosts"] == ["n1"]
    wait_for(lambda: "step " in run.rank_log(0, attempt=1), "the next attempt", 90)
    assert run.events("generation")[-1]["hosts"] == ["n2", "n3"]
    cluster.run("ctl", ["scancel", "--batch", "--signal=USR1", native_id(run)])
    wait_for(lambda: run.events("requeued")[1:], "the next requeue")
    waits_without(cluster, run, "n1", "n4")
