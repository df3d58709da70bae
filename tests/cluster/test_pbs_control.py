"""Status and cancel on a PBS with default settings: no job history, reruns by managers, preemption."""

import shutil
import signal

from node import wait_for
from pbs.using import nothing_runs, qsub
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"
LONG = ("--cold", STEPS, "--steps", "100000")


def refusing(server, text):
    """Puts another qdel in place; returns what puts the first one back."""
    path = server.bin / "qdel"
    before = path.read_text()
    path.write_text(f"#!/bin/sh\n{text}\n")
    return lambda: path.write_text(before)


def read_until(stream, words):
    said = ""
    while words not in said:
        line = stream.readline()
        assert line, f"{words!r} is not in {said}"
        said += line
    return said


def test_a_queued_run_is_known_and_cancelled_without_history(echelon, pbs, cluster):
    blocker = qsub(pbs, echelon.folder, "sleep 600", "-l", "select=4:ncpus=8", "-l", "place=scatter")
    follower = echelon.start("run", "-N", "2", *LONG)
    read_until(follower.stderr, "queued: not enough ncpus")
    run = echelon.only_run()
    assert run.status()["state"] == "QUEUED"
    refused = echelon("resume", run.id)
    assert (refused.returncode, "is still QUEUED" in refused.stderr) == (2, True)
    restore = refusing(pbs, "echo 'qdel: Unauthorized Request 1.ctl' >&2; exit 159")
    follower.send_signal(signal.SIGINT)
    said = read_until(follower.stderr, "cannot cancel")
    assert "PBS did not delete the job: qdel: Unauthorized Request" in said
    restore()
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=60)
    assert run.status()["state"] == "CANCELLED"
    assert not (run.path / "environment.sealed").exists()
    assert pbs.unfinished() == [blocker]
    cluster.run("ctl", ["qdel", blocker], env={"PATH": echelon.env["PATH"]})


def test_second_interrupt_during_a_cancel_cancels_again(echelon, pbs, cluster):
    blocker = qsub(pbs, echelon.folder, "sleep 600", "-l", "select=4:ncpus=8", "-l", "place=scatter")
    follower = echelon.start("run", "-N", "2", *LONG)
    read_until(follower.stderr, "queued: not enough ncpus")
    qdel = pbs.bin / "qdel"
    shutil.copy2(qdel, pbs.bin / "qdel.kept")
    first = f"mkdir {echelon.folder}/asked 2>/dev/null"
    refuse = "kill -INT $PPID; echo 'qdel: Unauthorized Request' >&2; exit 159"
    refusing(pbs, f'if {first}; then {refuse}; fi; exec {pbs.bin}/qdel.kept "$@"')
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=60)
    assert "cannot cancel" in said
    assert echelon.only_run().status()["state"] == "CANCELLED", said
    cluster.run("ctl", ["qdel", blocker], env={"PATH": echelon.env["PATH"]})


def test_a_running_run_is_cancelled_without_history(echelon, pbs, cluster):
    run = echelon.submit("-N", "2", *LONG)
    run.pid_of(1)
    assert run.status()["state"] == "RUNNING"
    result = echelon("cancel", run.id)
    assert (result.returncode, run.status()["state"]) == (0, "CANCELLED"), result.stderr
    nothing_runs(cluster)


def test_a_rerun_by_pbs_continues_the_run_with_its_environment(echelon, pbs, cluster):
    tell = "import os, time; print(os.environ['GREETING'], flush=True); time.sleep(600)"
    run = echelon.submit("-N", "2", "--cold", echelon.script("tell.py", tell), env={"GREETING": "hello"})
    wait_for(lambda: "hello" in run.rank_log(1), "rank 1")
    pbs.rerun("0.ctl")
    [requeued] = wait_for(lambda: run.events("requeued"), "the end of the first attempt")
    assert requeued["reason"] == "the scheduler requeued the job"
    wait_for(lambda: "hello" in run.rank_log(1, attempt=1), "rank 1 of the second attempt")
    assert (list(pbs.jobs), pbs.jobs["0.ctl"].run_count) == (["0.ctl"], 2)
    assert echelon("cancel", run.id).returncode == 0
    assert not (run.path / "environment.sealed").exists()
    nothing_runs(cluster)
