"""Failed steps on a real Slurm: the verdict has Slurm's message, and no node counts as lost."""

import pytest

from cluster import Cluster
from tool import Tool

MEMORY_LIMIT = "JobAcctGatherFrequency=1\nJobAcctGatherParams=OverMemoryKill\n"


@pytest.fixture
def strict():
    """A cluster of one node that kills steps for memory."""
    with Cluster(nodes=1, extra_conf=MEMORY_LIMIT) as cluster:
        yield Tool(cluster, cluster.make_folder())


def test_step_killed_for_memory_is_not_a_lost_node(strict):
    script = strict.script("greedy.py", "import time\nhoard = b'x' * (600 << 20)\ntime.sleep(60)\n")
    result = strict("run", "--cold", "--mem", "300M", "--requeues", "2", script)
    assert result.returncode == 1, result.stderr
    assert "the step on n1 was killed for memory: slurmstepd-n1: error: StepId=" in result.stderr
    assert "--mem SIZE asks for more memory per node" in result.stderr
    run = strict.only_run()
    assert run.events("requeued") == []
    assert "lost_hosts" not in run.events("finished")[0]


def test_an_srun_that_cannot_start_is_reported_with_its_error(echelon):
    """No pyxis is installed, so srun does not know its options."""
    script = echelon.script("train.py", "print('never')\n")
    (echelon.folder / "image.sqsh").touch()
    result = echelon("run", "--env", "pyxis", "--image", echelon.folder / "image.sqsh", "--requeues", "2", script)
    assert result.returncode == 3, result.stderr
    assert "srun could not start the agent on n1" in result.stderr
    assert "srun: unrecognized option" in result.stderr
    assert echelon.only_run().events("requeued") == []
