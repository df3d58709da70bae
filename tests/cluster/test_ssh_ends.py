"""Ends and losses of runs over ssh: no process is left, and the run continues on the remaining hosts."""

import os
import signal
import time

import pytest

from cluster import Cluster
from node import wait_for
from running import ONCE_MORE
from ssh_hosts import (
    LONG,
    STEPS,
    agents_on,
    clients,
    gone_within,
    on,
    supervisor_of,
    two_by_two,
    wait_for_steps,
)

ALL = ("supervisor", "ssh", "bootstrap")
SETUP = ("--setup", "true")  # the least of an environment


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nodes=0, ssh_hosts=3) as up:
        yield up


def test_cancel_ends_a_submitted_run(cluster, echelon):
    run = echelon.submit(*two_by_two(), STEPS, *LONG)
    wait_for_steps(run, 3)
    assert run.status()["state"] == "RUNNING"
    assert echelon("cancel", run.id).returncode == 0
    gone_within(cluster, 5, "h1", "h2", "h3", "ctl")
    assert run.status()["state"] == "CANCELLED"


def test_failing_rank_gets_a_verdict(echelon):
    result = echelon("run", *two_by_two(), STEPS, "--do", "raise", "--who", "2")
    assert result.returncode == 1
    assert "rank 2 on h2 raised ValueError: rank 2 is unhappy" in result.stderr
    assert 'raise ValueError(f"rank {rank} is unhappy")' in result.stderr


def test_killed_rank_uses_one_restart(echelon):
    result = echelon("run", *two_by_two("--restarts", "1"), STEPS, "--do", "kill", "--who", "3")
    assert result.returncode == 0, result.stderr
    (fault,) = echelon.only_run().events("fault")
    assert fault["fault"].startswith("rank 3 on h2 was killed by SIGKILL")


def test_stacks_of_a_hang_come_back(echelon):
    result = echelon("run", *two_by_two("--hang-timeout", "2s"), STEPS, "--do", "sleep")
    run = echelon.only_run()
    assert result.returncode == 1
    for rank in range(4):
        assert "steps.py" in (run.path / "attempt-0" / "evidence" / "generation-0" / f"rank-{rank}.stacks").read_text()


def killed(cluster, who):
    """The supervisor, what it talks to both hosts with, or what holds that for an agent in an environment."""
    if who == "supervisor":
        return [supervisor_of(cluster)]
    if who == "ssh":
        return [p.pid for host in ("h1", "h2") for p in clients(cluster, host)]
    return [p.pid for host in ("h1", "h2") for p in cluster.leftovers()[host] if "exec(eval(" in p.command]


@pytest.mark.parametrize(
    ("who", "inside"), [(who, ()) for who in ("supervisor", "ssh")] + [(who, SETUP) for who in ALL]
)
def test_processes_end_with_their_connection(cluster, echelon, who, inside):
    run = echelon.submit(*two_by_two(*inside), STEPS, *LONG)
    wait_for_steps(run, 3)
    pids = killed(cluster, who)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    gone_within(cluster, 5, "h1", "h2")
    if who == "supervisor":
        (run.path / "token").unlink()  # it had no time to
    else:
        assert "lost h" in run.wait()["fault"]


def test_broken_connection_is_replaced(cluster, echelon):
    run = echelon.submit(*two_by_two("--restarts", "1"), STEPS, *ONCE_MORE)
    wait_for_steps(run, 3)
    os.kill(clients(cluster, "h2")[0].pid, signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"], ["h1", "h2"]]


def test_interrupted_start_leaves_no_process(cluster, echelon):
    """The supervisor is killed while torch is still being imported."""
    run = echelon.submit(*on("h1,h2", "-g", "2"), STEPS)
    starting = wait_for(lambda: [p for p in cluster.leftovers().get("h2", []) if " starter " in p.command], "a starter")
    assert starting
    os.kill(supervisor_of(cluster), signal.SIGKILL)
    gone_within(cluster, 5, "h1", "h2")
    (run.path / "token").unlink()


@pytest.mark.parametrize(("starter_too", "inside"), [(False, ()), (True, ()), (False, SETUP)])
def test_a_killed_agent_leaves_nothing_and_is_replaced(cluster, echelon, starter_too, inside):
    """With its starter goes the last one who could tidy up; the next agent does."""
    run = echelon.submit(*two_by_two("--restarts", "1", *inside), STEPS, *ONCE_MORE)
    wait_for_steps(run, 3)
    (agent,) = agents_on(cluster, "h2")
    starters = [p for p in cluster.leftovers()["h2"] if " starter " in p.command]
    os.kill(agent.pid, signal.SIGSTOP)  # or it would replace its starter
    for process in (*(starters if starter_too else ()), agent):
        os.kill(process.pid, signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["fault"] for event in run.events("fault")] == ["lost h2: its agent died"]


def test_a_run_that_waits_for_a_slow_host_can_be_cancelled(cluster, echelon):
    slow = cluster.home_of("h1") / ".bashrc"
    slow.write_text("sleep 30\n")
    run = echelon.submit(*two_by_two(), STEPS)
    wait_for(lambda: clients(cluster, "h1"), "ssh")
    began = time.monotonic()
    assert echelon("cancel", run.id).returncode == 0
    slow.unlink()
    assert run.status()["state"] == "CANCELLED"
    assert time.monotonic() - began < 15
    cluster.end_leftovers()  # the shell sleeps on


# Hosts that are lost


def test_spare_host_replaces_a_lost_host(cluster, echelon):
    run = echelon.submit(
        *on("h1,h2,h3", "-N", "2", "--spare-nodes", "1", "-g", "2", "--cold", "--heartbeat", "2s"),
        STEPS,
        *ONCE_MORE,
    )
    wait_for_steps(run, 3)
    cluster.power_off("h2")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"], ["h1", "h3"]]
    assert "lost h2: " in run.events("fault")[0]["fault"]


def test_run_without_spare_continues_with_fewer_nodes(cluster, echelon):
    run = echelon.submit(
        *two_by_two("--min-nodes", "1", "--heartbeat", "2s"),
        STEPS,
        *ONCE_MORE,
    )
    wait_for_steps(run, 3)
    cluster.power_off("h1")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"], ["h2"]]


def test_run_with_too_few_hosts_fails_and_names_lost_hosts(cluster, echelon):
    run = echelon.submit(*two_by_two("--restarts", "3", "--heartbeat", "2s"), STEPS, *LONG)
    wait_for_steps(run, 3)
    cluster.power_off("h2")
    end = run.wait()
    assert end["outcome"] == "failed"
    assert "1 of 2 nodes are left (lost: h2)" in end["reason"]
    gone_within(cluster, 5, "h1")


def test_briefly_cut_link_has_no_effect(cluster, echelon):
    run = echelon.submit(*two_by_two(), STEPS, "--steps", "60", "--seconds", "0.1")
    wait_for_steps(run, 3)
    cluster.cut("h2")
    time.sleep(3)
    cluster.heal("h2")
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("generation")) == 1
