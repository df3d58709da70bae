"""Arrays on PBS: one job array with a run for each index, which is requeued, resumed and cancelled separately."""

import json

from node import wait_for
from pbs.using import nothing_runs, qsub

TASK = """
import os, sys
index, attempt = os.environ["PBS_ARRAY_INDEX"], os.environ["ECHELON_ATTEMPT"]
print("task", index, "attempt", attempt, os.environ["GREETING"], flush=True)
sys.exit({("2", "0"): 75, ("3", "0"): 1, ("3", "1"): 0}.get((index, attempt), 0))
"""


def states(echelon, count):
    return [run["state"] for run in json.loads(echelon("ls", "--json", "-n", count).stdout)]


def test_an_array_is_one_pbs_array_and_a_run_for_each_index(echelon, pbs, cluster):
    script, env = echelon.script("task.py", TASK), {"GREETING": "hello\nyou"}
    result = echelon("run", "-N", "2", "--cold", "--array", "1-3%2", "--requeues", "1", script, env=env)
    assert result.returncode == 1, result.stderr
    said = sorted(line for line in result.stdout.splitlines() if "task" in line and not line.startswith("3"))
    tasks = [("1", "1", "0"), ("2", "2", "0"), ("2", "2", "1")]
    assert said == sorted(f"{i}[{rank}] task {n} attempt {a} hello" for i, n, a in tasks for rank in (0, 1))
    assert "] task 3 attempt 0 hello" in result.stdout, "the rank that fails first ends the other"
    assert "PBS job array 0[].ctl, 3 runs of" in result.stderr
    listed = json.loads(echelon("ls", "--json", "-n", "3").stdout)
    assert [run["state"] for run in listed] == ["SUCCEEDED", "SUCCEEDED", "FAILED"]
    assert [run["native_id"] for run in listed] == ["0[1].ctl", "1.ctl", "0[3].ctl"]
    assert "depend" not in pbs.jobs["1.ctl"].request.attributes
    assert "exited with code 1" in echelon("why", listed[2]["run_id"]).stdout
    assert not list(echelon.folder.glob("runs/*/environment.sealed"))
    again = echelon("resume", listed[2]["run_id"], env=env)
    assert again.returncode == 0, again.stderr
    assert "[1] task 3 attempt 1 hello" in again.stdout
    assert list(pbs.jobs) == ["0[].ctl", "0[1].ctl", "0[2].ctl", "0[3].ctl", "1.ctl", "2.ctl"]
    nothing_runs(cluster)


def test_one_run_of_an_array_is_cancelled_and_then_all(echelon, pbs, cluster):
    blocker = qsub(pbs, echelon.folder, "sleep 600", "-l", "select=3:ncpus=8", "-l", "place=scatter")
    result = echelon("submit", "--cold", "--array", "0-2", echelon.script("wait.py", "import time; time.sleep(600)"))
    runs = result.stdout.split()
    assert len(runs) == 3, result.stderr
    wait_for(lambda: pbs.jobs["1[0].ctl"].state == "R", "the first to run")
    assert echelon("cancel", runs[1]).returncode == 0
    assert [pbs.jobs[f"1[{i}].ctl"].state for i in range(3)] == ["R", "X", "Q"]
    assert states(echelon, 3)[1:] == ["CANCELLED", "QUEUED"]
    assert echelon("cancel", runs[0].rpartition("-")[0]).returncode == 0
    assert states(echelon, 3) == ["CANCELLED"] * 3
    wait_for(lambda: pbs.unfinished() == [blocker], "the array to end")
    assert not list(echelon.folder.glob("runs/*/environment.sealed"))
    cluster.run("ctl", ["qdel", blocker], env={"PATH": echelon.env["PATH"]})
