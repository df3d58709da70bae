"""Agents on the other hosts of a PBS job: what starts them there, and what they say when they cannot."""

import pytest

from pbs.using import nothing_runs
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"


@pytest.mark.parametrize("folder", ["runs", "runs of mine"])
def test_an_agent_that_cannot_start_says_why_with_the_rest_of_the_job(echelon, pbs, cluster, folder):
    """Also where PBS could not be told of a file for what tasks print."""
    setup = 'echo "setting up $(hostname)"; [ "$(hostname)" = n1 ] || ulimit -n 6'
    env = {"ECHELON_RUNS": str(echelon.folder / folder)}
    result = echelon("run", "-N", "2", "--cold", "--setup", setup, STEPS, env=env)
    assert result.returncode == 1, result.stderr
    assert "n2 was lost: its agent died" in result.stderr
    [run] = (echelon.folder / folder).iterdir()
    said = (run / "job.out").read_text()
    assert "setting up n1" in said
    assert "setting up n2" in said
    assert "Too many open files" in said
    nothing_runs(cluster)
    cluster.remove_debris()  # it could not even open the folder that it leaves behind
