"""What the supervisor does with ranks that exit late or start late."""

import os
import signal

from echelon.system import processes
from running import wait_for

LATE_EXIT = """
import os, signal, time

def main():
    if os.environ["RANK"] == "1":
        time.sleep(600)
    if os.environ["RANK"] == "2":
        os.kill(os.getpid(), signal.SIGSTOP)

main()
"""

# Python imports this at its start. The second starter waits until a rank of the first one has made the file `go`.
HOLD_SECOND_STARTER = """
import os, sys, time
if "starter" in sys.orig_argv:
    try:
        os.mkdir("first-starter")
    except FileExistsError:
        while not os.path.exists("go"):
            time.sleep(0.05)
"""

IDLE_UNTIL_LATE_NODE = """
import os, time
if not os.path.exists("go"):
    time.sleep(5)
    os.mkdir("go")
"""


def test_a_rank_that_exits_late_is_reported_with_its_stack(echelon):
    script = echelon.script("train.py", LATE_EXIT)
    run = echelon.submit("--procs-per-node", "3", "--cold", "--hang-timeout", "24s", script)
    (warning,) = wait_for(lambda: run.events("warning"), "the warning")
    assert warning["text"] == "rank 0 finished; ranks 1, 2 have not exited for 12 s"
    stacks = [run.path / "attempt-0" / "evidence" / "generation-0" / f"rank-{rank}.stacks" for rank in (1, 2)]
    wait_for(lambda: all(path.exists() for path in stacks), "the stacks, before the hang timeout", 10)
    assert processes.is_stopped(run.pid_of(2)), "a warning must not continue a rank"
    os.kill(run.supervisor(), signal.SIGTERM)
    assert run.wait()["outcome"] == "cancelled"
    why = echelon("why", "--full", run.id).stdout.splitlines()
    assert "  rank 1: in train.py:6 (time.sleep)" in why
    assert "  rank 2: stopped by a signal (SIGSTOP)" in why
    assert why[why.index("rank 1:") + 1] == f"  {script}:6 in main (time.sleep)"
    assert f"  warning {warning['text']}" in why
    assert not any("rank 0" in line for line in why if not line.startswith("  warning "))


def test_ranks_that_wait_for_a_late_node_do_not_hang(echelon):
    (echelon.folder / "sitecustomize.py").write_text(HOLD_SECOND_STARTER)
    script = echelon.script("idle.py", IDLE_UNTIL_LATE_NODE)
    flags = ("-N", "2", "--procs-per-node", "1", "--cold", "--hang-timeout", "2s", "--join-timeout", "60s")
    result = echelon("run", *flags, script, env={"PYTHONPATH": str(echelon.folder)})
    assert result.returncode == 0, result.stderr
    assert (echelon.folder / "go").exists()
    assert echelon.only_run().events("fault") == []
