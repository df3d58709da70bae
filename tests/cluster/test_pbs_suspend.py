"""A suspended PBS job: its ranks stop, because other jobs may use their GPUs, and continue after it is resumed."""

import os
import shutil
from pathlib import Path

import pytest

from node import wait_for
from pbs.using import nothing_runs
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"
SUSPENDED_SECONDS = 7  # longer than heartbeat and hang timeout

NO_MPI = shutil.which("mpirun") is None and "SKIP_NOTHING" not in os.environ
MPIRUN = pytest.param(
    ("--launcher", "mpirun"), marks=pytest.mark.skipif(NO_MPI, reason="Open MPI is not installed"), id="mpirun"
)


def ranks(cluster):
    return [
        process.pid for host in ("n1", "n2") for process in cluster.processes(host) if "steps.py" in process.command
    ]


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.parametrize("how", [pytest.param(("--cold",), id="ranks"), MPIRUN])
def test_suspended_run_stops_its_ranks_and_continues(echelon, pbs, cluster, how):
    """Ranks of mpirun on n2 descend from Open MPI's daemon there, which PBS stops, and have sessions of their own."""
    policy = ("--heartbeat", "3s", "--hang-timeout", "5s", *how)
    run = echelon.submit("-N", "2", *policy, STEPS, "--steps", "100000", "--seconds", "0.05")
    wait_for(lambda: "step 3\n" in run.rank_log(1), "rank 1 to take steps")
    pbs.suspend("0.ctl")
    wait_for(lambda: {state(pid) for pid in ranks(cluster)} == {"T"}, "every rank to stop")
    before = run.rank_log(1)
    cluster.run("ctl", ["sleep", str(SUSPENDED_SECONDS)])
    assert run.rank_log(1) == before
    assert run.status()["reason"] == "suspended"
    pbs.resume("0.ctl")
    wait_for(lambda: len(run.rank_log(1)) > len(before) + 500, "rank 1 to take steps again")
    assert (run.events("fault"), len(run.events("generation"))) == ([], 1)
    assert echelon("cancel", run.id).returncode == 0
    nothing_runs(cluster)
