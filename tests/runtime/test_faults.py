"""Ranks, agents and supervisors that die, hang or freeze: one fault, one restart, one verdict, nothing left."""

import json
import os
import signal
import time

import pytest

from echelon.system import processes
from running import ONCE_MORE, SCRIPTS, marked_processes, wait_for

STEPS = SCRIPTS / "steps.py"
TWO_BY_TWO = ("-N", "2", "-g", "2", "--cold")


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("kill", "rank 1 on node0 was killed by SIGKILL"),
        ("exit", "rank 1 on node0 exited with code 3"),
        ("raise", "rank 1 on node0 raised ValueError: rank 1 is unhappy"),
    ],
)
def test_one_fault_uses_one_restart_and_the_run_recovers(echelon, what, sentence):
    result = echelon("run", *TWO_BY_TWO, "--restarts", "2", STEPS, "--do", what)
    assert result.returncode == 0, result.stderr
    (fault,) = echelon.only_run().events("fault")
    assert fault["fault"].startswith(sentence)
    assert fault["restarts_left"] == 1
    for rank in range(4):
        assert echelon.only_run().rank_log(rank).endswith("generation 1 step 9\ndone\n")


def test_first_fault_without_restarts_ends_the_run_with_its_code(echelon):
    result = echelon("run", *TWO_BY_TWO, STEPS, "--do", "exit")
    assert result.returncode == 3
    assert "rank 1 on node0 exited with code 3" in result.stderr
    assert "--restarts" in result.stderr


def test_a_signal_shows_as_shells_show_it(echelon):
    assert echelon("run", *TWO_BY_TWO, STEPS, "--do", "kill").returncode == 128 + signal.SIGKILL


def test_the_verdict_names_rank_host_traceback_and_log(echelon):
    result = echelon("run", *TWO_BY_TWO, STEPS, "--do", "raise")
    run = echelon.only_run()
    assert result.returncode == 1
    assert result.stderr.count("Traceback (most recent call last)") == 1
    assert "as_main" not in result.stderr, "our own frames are none of the user's business"
    assert str(run.path / "attempt-0" / "rank-1.out") in result.stderr
    error = json.loads((run.path / "attempt-0" / "error.json").read_text())
    assert (error["rank"], error["host"], error["error"]["type"]) == (1, "node0", "ValueError")
    assert 'raise ValueError(f"rank {rank} is unhappy")' in error["error"]["traceback"]
    assert (run.path / "attempt-0" / "exit_code").read_text() == "1\n"


def test_the_first_failure_by_time_is_the_verdict(echelon):
    script = echelon.script(
        "two.py",
        "import os, time\nif os.environ['RANK'] == '2':\n"
        "    open('raised', 'w').close()\n    raise RuntimeError('cause')\n"
        "while not os.path.exists('raised'):\n    time.sleep(0.01)\n"
        "time.sleep(0.2)\nraise RuntimeError('consequence')\n",
    )
    result = echelon("run", *TWO_BY_TWO, "--grace", "3s", script)
    assert "rank 2 on node1 raised RuntimeError: cause" in result.stderr


def test_same_exception_twice_stops_the_run(echelon):
    result = echelon("run", *TWO_BY_TWO, "--restarts", "9", STEPS, "--do", "raise", "--always")
    assert result.returncode == 1
    assert len(echelon.only_run().events("generation")) == 2
    assert "same exception at the same" in result.stderr


def test_three_generations_without_progress_stop_the_run(echelon):
    result = echelon("run", "--cold", "--restarts", "9", STEPS, "--who", "0", "--do", "kill", "--always", "--report")
    assert result.returncode == 137
    assert len(echelon.only_run().events("generation")) == 4, "the first one got somewhere, three more did not"
    assert "3 generations in a row made no progress" in result.stderr


@pytest.mark.parametrize("what", ["sleep", "stop"])
def test_a_hang_is_found_and_stacks_of_every_rank_are_saved(echelon, what):
    result = echelon("run", *TWO_BY_TWO, "--restarts", "1", "--hang-timeout", "2s", STEPS, "--do", what)
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    (fault,) = run.events("fault")
    assert fault["fault"].startswith("no progress for 2 s: rank")
    assert ("rank 1 on node0 is stopped by a signal (SIGSTOP)" in fault["fault"]) == (what == "stop")
    assert ("steps.py:" in fault["fault"]) == (what == "sleep")
    for rank in range(4):
        expected = "state T" if (what, rank) == ("stop", 1) else "steps.py"
        assert expected in (run.path / "attempt-0" / "evidence" / "generation-0" / f"rank-{rank}.stacks").read_text()


def test_a_silent_but_busy_rank_is_not_a_hang(echelon):
    script = echelon.script("busy.py", "import time\nend = time.time() + 5\nwhile time.time() < end: pass\n")
    result = echelon("run", "--cold", "--hang-timeout", "1s", script)
    assert result.returncode == 0, result.stderr


def test_busy_rank_without_new_steps_hangs(echelon):
    script = echelon.script("stuck.py", "import echelon\nechelon.report(1)\nwhile True: pass\n")
    result = echelon("run", "--cold", "--hang-timeout", "2s", script)
    assert result.returncode == 1
    assert "no progress for 2 s: rank 0 on node0 has been running in stuck.py:3" in result.stderr


def agents_of(run) -> list[int]:
    """Sorted by node, read from their arguments: pids may wrap around."""
    agents = [(line.split(), pid) for pid, line in marked_processes(run.tool.mark) if "echelon.pyz agent" in line]
    return [pid for _, pid in sorted(agents)]


def ranks_of(run) -> list[int]:
    return [pid for pid, line in marked_processes(run.tool.mark) if "echelon.pyz rank" in line]


def test_ranks_die_with_their_killed_agent_and_the_run_recovers(echelon):
    run = echelon.submit(*TWO_BY_TWO, "--restarts", "1", STEPS, *ONCE_MORE)
    pids = [run.pid_of(rank) for rank in range(4)]
    wait_for(lambda: "step 3" in run.rank_log(3), "a few steps")
    os.kill(agents_of(run)[0], signal.SIGKILL)
    wait_for(lambda: not set(pids) & set(ranks_of(run)), "no rank of the old generation to live", 5)
    assert run.wait()["outcome"] == "succeeded"
    (fault,) = run.events("fault")
    assert fault["fault"].endswith(": its agent died")


def test_a_killed_starter_is_one_fault(echelon):
    run = echelon.submit(*TWO_BY_TWO, "--restarts", "1", STEPS, *ONCE_MORE)
    wait_for(lambda: len(run.events("rank_ready")) == 4, "every starter to be ready: one that never was cannot start")
    starters = [pid for pid, line in marked_processes(echelon.mark) if "echelon.pyz starter" in line]
    os.kill(starters[0], signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("fault")) == 1


def test_killed_supervisor_leaves_no_process_and_a_lost_run(echelon):
    run = echelon.submit(*TWO_BY_TWO, STEPS, "--steps", "1000", "--seconds", "0.1")
    run.pid_of(3)
    os.kill(run.supervisor(), signal.SIGKILL)
    wait_for(lambda: not marked_processes(echelon.mark), "agents and ranks to leave", 5)
    status = run.status()
    assert status["state"] == "LOST"
    assert status["exit_code"] is None
    (run.path / "token").unlink()  # nobody was left to take it away; the next attempt would replace it


def test_a_frozen_agent_counts_as_a_lost_node(echelon):
    run = echelon.submit(*TWO_BY_TWO, "--restarts", "1", "--heartbeat", "2s", STEPS, *ONCE_MORE)
    run.pid_of(3)
    os.kill(agents_of(run)[0], signal.SIGSTOP)
    assert run.wait()["outcome"] == "succeeded"
    (fault,) = run.events("fault")
    assert fault["fault"].endswith(": no heartbeat for 2 s")


def test_spare_node_replaces_a_lost_node(echelon):
    run = echelon.submit(*TWO_BY_TWO, "--spare-nodes", "1", STEPS, *ONCE_MORE)
    run.pid_of(3)
    os.kill(agents_of(run)[0], signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")][-1][-1] == "node2"


def test_with_min_nodes_a_silent_node_makes_the_run_smaller(echelon):
    run = echelon.submit(
        *TWO_BY_TWO,
        "--min-nodes",
        "1",
        "--heartbeat",
        "2s",
        STEPS,
        *ONCE_MORE,
    )
    run.pid_of(3)
    os.kill(agents_of(run)[0], signal.SIGSTOP)
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("generation")[-1]["hosts"]) == 1


def test_leftover_processes_of_ranks_are_ended(echelon):
    script = echelon.script(
        "daemon.py",
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n"
        "print('left a daemon', flush=True)\n",
    )
    started = time.monotonic()
    assert echelon("run", "-g", "2", "--cold", script).returncode == 0
    assert time.monotonic() - started < 60, "the daemon's grip on the pipe must not hold the run up"


def test_broken_torch_import_is_named_and_uses_no_restart(echelon):
    broken = echelon.folder / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise OSError('libcublas.so.12: cannot open shared object file')\n")
    result = echelon("run", "--restarts", "3", STEPS, env={"PYTHONPATH": str(broken.parent)})
    assert result.returncode == 3
    assert "libcublas.so.12: cannot open shared object file" in result.stderr
    assert echelon.only_run().events("fault") == []


def test_hang_timeout_may_be_shorter_than_the_import_of_torch(echelon):
    script = echelon.script("short.py", "print('done')\n")
    result = echelon("run", "--hang-timeout", "1s", script)
    assert result.returncode == 0, result.stderr


def test_a_cancel_between_two_attempts_is_not_lost(echelon):
    script = echelon.script("again.py", "raise SystemExit(75)\n")
    run = echelon.submit("--cold", "--requeues", "1000", script)
    wait_for(lambda: len(run.events("requeued")) > 3, "a few requeues")
    os.kill(run.supervisor(), signal.SIGTERM)
    assert run.wait()["outcome"] == "cancelled"


def test_an_agent_whose_rank_closed_its_output_does_not_spin(echelon):
    script = echelon.script(
        "quiet.py", "import os, time\nos.close(1)\nos.close(2)\nopen('closed', 'w').close()\ntime.sleep(600)\n"
    )
    run = echelon.submit("--cold", script)
    wait_for((echelon.folder / "closed").exists, "the rank to close its output")
    (agent,) = agents_of(run)
    before = processes.cpu_seconds(agent)
    time.sleep(2)
    assert processes.cpu_seconds(agent) - before < 1, "a loop over a closed pipe takes a whole core"
    assert echelon("cancel", run.id).returncode == 0
