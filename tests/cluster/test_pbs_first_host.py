"""The first host of a PBS job, which runs the supervisor, is lost or cut off. Exactly one successor continues the run."""

import pytest

from node import wait_for
from pbs.server import Server
from pbs.using import use
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"


def supervisors_on(cluster, host):
    return [process for process in cluster.processes(host) if " supervise " in process.command]


@pytest.mark.parametrize("loss", ["power", "link"])
def test_run_continues_after_the_first_host_is_lost(cluster, echelon, loss):
    """PBS does not notice the loss yet, and refuses to delete the job before it does. A host that is cut off can still
    write to the run's folder, and returns when the successor has the run."""
    with Server(cluster) as server:
        use(echelon, server)
        run = echelon.submit(
            "-N", "2", "--requeues", "1", "--heartbeat", "3s", "--cold", STEPS, "--steps", "60", "--seconds", "0.1"
        )
        wait_for(lambda: "step 3" in run.rank_log(1), "rank 1 to take steps")
        (cluster.power_off if loss == "power" else cluster.cut)("n1")
        wait_for(lambda: len(run.events("generation")) == 2, "a successor", 60)
        if loss == "link":  # the first supervisor may still ask for a successor, or see that there is one
            cluster.heal("n1")
        assert run.wait()["outcome"] == "succeeded"
        wait_for(lambda: not supervisors_on(cluster, "n1"), "the first supervisor to leave", 40)
        assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"], ["n2", "n3"]]
        [requeued] = run.events("requeued")
        assert requeued["attempt"] == 0
        assert ("n1 is cut off" in requeued["reason"]) == (loss == "link")
        assert "job 0.ctl was deleted by force" in (run.path / "job.out").read_text()
        wait_for(lambda: not server.unfinished(), "PBS to be rid of both jobs")
        assert list(server.jobs) == ["0.ctl", "1.ctl"]
