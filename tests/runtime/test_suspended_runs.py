"""A job that is stopped for longer than heartbeat and hang timeout, and continued."""

import os
import shutil
import signal
import time

import pytest

from echelon.system import processes
from running import SCRIPTS, wait_for

STOPPED_SECONDS = 5.0
NO_MPI = shutil.which("mpirun") is None and "SKIP_NOTHING" not in os.environ
LIMITS = ("--heartbeat", "2s", "--hang-timeout", "4s")


def agents_of(run):
    wait_for(lambda: len(processes.children(run.supervisor())) == 2, "both agents")
    return processes.children(run.supervisor())


def send_all(pids, signum):
    for pid in pids:
        processes.send_signal(pid, signum)


@pytest.mark.parametrize("whole_tree", [True, False], ids=["all processes", "supervisor and agents"])
def test_stopped_job_continues_after_sigcont(echelon, whole_tree):
    steps = ("--steps", "200", "--seconds", "0.05")
    run = echelon.submit("-N", "2", "-g", "1", "--cold", *LIMITS, SCRIPTS / "steps.py", *steps)
    ranks = [run.pid_of(0), run.pid_of(1)]
    wait_for(lambda: run.rank_log(1), "a step")
    supervisor = run.supervisor()
    stopped = [supervisor, *(processes.descendants(supervisor) if whole_tree else agents_of(run))]
    send_all(stopped, signal.SIGSTOP)
    try:
        wait_for(lambda: all(map(processes.is_stopped, ranks)), "the ranks to stop with their agents", 20)
        time.sleep(STOPPED_SECONDS)  # the time that the job is stopped is what is tested
    finally:
        send_all(stopped, signal.SIGCONT)
    assert run.wait()["outcome"] == "succeeded"
    assert run.events("fault") == []
    assert "the supervisor was stopped for" in (run.path / "job.out").read_text()


@pytest.mark.skipif(NO_MPI, reason="Open MPI is not installed")
def test_ranks_of_a_launcher_elsewhere_stop_with_their_agent(echelon):
    """One mpirun starts all ranks: those of the second node are not below that node's agent."""
    steps = ("--steps", "100000", "--seconds", "0.05")
    run = echelon.submit("-N", "2", "-g", "1", "--launcher", "mpirun", SCRIPTS / "steps.py", *steps)
    first, second = run.pid_of(0), run.pid_of(1)
    wait_for(lambda: run.rank_log(1), "a step")
    [agent] = [pid for pid in agents_of(run) if second not in processes.descendants(pid)]
    assert first not in processes.descendants(agent)
    send_all([agent], signal.SIGSTOP)
    try:
        wait_for(lambda: processes.is_stopped(second), "the rank to stop with its agent", 20)
        assert not processes.is_stopped(first)
    finally:
        send_all([agent], signal.SIGCONT)
    wait_for(lambda: not processes.is_stopped(second), "the rank to continue")
    assert echelon("cancel", run.id).returncode == 0
    assert run.events("fault") == []
