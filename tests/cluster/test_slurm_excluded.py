"""Excluded nodes on a real Slurm: nodes that the run has lost, and those of --exclude."""

from pathlib import Path

from echelon.backends.slurm.query import parse_fields
from echelon.system import hostlist
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
        return sorted(hostlist.expand(parse_fields(line)["ExcNodeList"]))

    wait_for(lambda: left_out() == sorted(names), f"{names} to be left out")
    cluster.run("ctl", ["scancel", native_id(run)])
    wait_for(lambda: not cluster.jobs(), "the job to leave the queue")


def test_lost_node_is_excluded_beside_the_users_exclusions(cluster, echelon):
    run = submit(echelon)
    wait_for(lambda: "step 3 " in run.rank_log(0), "step 3 of rank 0")
    cluster.power_off("n2")
    requeued = wait_for(lambda: run.events("requeued"), "the requeue", 90)
    assert requeued[0]["lost_hosts"] == ["n2"]
    waits_without(cluster, run, "n2", "n4")


def test_lost_first_node_is_excluded_from_the_second_requeue_on(cluster, echelon):
    """Earlier, Slurm accepts no change of the job before all its processes have ended. The node is down then anyway."""
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
