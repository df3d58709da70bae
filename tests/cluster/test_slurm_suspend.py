"""`scontrol suspend` and `resume` of a job on a real Slurm, for longer than heartbeat and hang timeout."""

import time

from running import wait_for
from slurm_story import finished, native_id

STEPS = """
import time
for step in range(100):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


def test_suspended_job_continues_after_resume(cluster, echelon):
    limits = ("--heartbeat", "3s", "--hang-timeout", "5s")
    script = echelon.script("steps.py", STEPS)
    run = echelon.submit("-N", "2", "--procs-per-node", "2", "--cold", *limits, script)
    wait_for(lambda: all("step 2" in run.rank_log(rank) for rank in range(4)), "all ranks at work")
    cluster.run("ctl", ["scontrol", "suspend", native_id(run)], user="root")
    time.sleep(2.0)  # what was written before reaches the shared folder
    before = [run.rank_log(rank) for rank in range(4)]
    time.sleep(7.0)
    assert [run.rank_log(rank) for rank in range(4)] == before, "a suspended rank goes on"
    cluster.run("ctl", ["scontrol", "resume", native_id(run)], user="root")
    finished(run, "succeeded")
    assert run.events("fault") == []
    assert "the supervisor was stopped for" in (run.path / "job.out").read_text()
