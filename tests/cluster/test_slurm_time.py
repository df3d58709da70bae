"""Runs on a real Slurm that are stopped by the time limit, an administrator or a preemption, and resumed."""

from running import Run, wait_for
from slurm_story import SAVE, TRAIN, finished, native_id, waiting
from taken import samples, undisturbed


def weights(run: Run, attempt: int) -> str:
    (line,) = [line for line in run.rank_log(0, attempt).splitlines() if line.startswith("weights ")]
    return line


def test_time_limit_gives_notice_checkpoint_requeue_and_resume(cluster, echelon):
    size = ["-N", "2", "--procs-per-node", "2"]
    policy = ["--time", "60s", "--notice", "25s", "--requeues", "20"]  # on a busy machine an attempt does few steps
    run = echelon.submit(*size, *policy, SAVE, "--samples", "400", "--seconds", "0.35")
    peer = echelon.submit(*size, SAVE, "--samples", "400", "--seconds", "0")
    finished(run, "succeeded", 140)
    attempts = len(run.events("started"))
    assert attempts >= 2
    assert all(event["reason"] == "the ranks stopped in time" for event in run.events("requeued"))
    assert {event["attempt"] for event in run.events("notice")} >= set(range(attempts - 1))
    assert samples(run, 4, attempts) == undisturbed(400)
    finished(peer, "succeeded")
    assert weights(run, attempts - 1) == weights(peer, 0), "bit for bit those of a run that nobody disturbed"


def test_requeue_by_an_administrator_continues_the_run(cluster, echelon):
    state, go = echelon.folder / "state", echelon.folder / "go"
    run = echelon.submit("-N", "2", TRAIN, "--samples", "20", "--state", state, "--wait-for", go)
    waiting(run)
    cluster.run("ctl", ["scontrol", "requeue", native_id(run)], user="root")
    wait_for(lambda: run.events("requeued"), "the requeue to be noticed")
    go.touch()
    finished(run, "succeeded")
    assert [event["attempt"] for event in run.events("started")] == [0, 1]
    assert samples(run, 2, 2)[-12:] == undisturbed(20)[-12:]


def test_successor_follows_if_requeue_is_not_allowed(cluster, echelon):
    state = echelon.folder / "state"
    run = echelon.submit("-N", "2", "--requeues", "1", TRAIN, "--samples", "60", "--state", state)
    waiting(run)
    first = native_id(run)
    cluster.run("ctl", ["scontrol", "update", f"JobId={first}", "Requeue=0"], user="root")
    cluster.run("ctl", ["scancel", "--batch", "--signal=USR1", first])
    finished(run, "succeeded")
    assert native_id(run) != first
    assert [event["attempt"] for event in run.events("started")] == [0, 1]
    assert samples(run, 2, 2) == undisturbed(60)


def test_scancel_by_the_user_ends_the_run(cluster, echelon):
    """Ranks die of the same SIGTERM as in a preemption, but the job is not requeued."""
    run = echelon.submit("-N", "2", "--requeues", "3", TRAIN, "--samples", "600")
    waiting(run)
    cluster.run("ctl", ["scancel", native_id(run)])
    wait_for(lambda: not cluster.jobs(), "the job to leave the queue")
    assert run.status()["state"] == "CANCELLED"
    assert run.events("requeued") == []


def test_preempted_run_gets_notice_and_continues(cluster, echelon):
    """Slurm signals every process of the job, including ranks. The library ignores that, saves, and the run is resumed."""
    run = echelon.submit("-N", "2", "-p", "low", SAVE, "--samples", "120", "--seconds", "0.1")
    waiting(run)
    cluster.run("ctl", ["sbatch", "-p", "high", "-N4", "--exclusive", "--wrap", "sleep 1"])
    requeued = wait_for(lambda: run.events("requeued"), "the requeue")[0]
    assert requeued["counts"] is False
    finished(run, "succeeded")
    assert samples(run, 2, 2) == undisturbed(120)
    wait_for(lambda: not cluster.jobs(), "the job to leave the queue")  # 24.11 requeues it again after its end
    assert [event["attempt"] for event in run.events("started")] == [0, 1]


USR1_ONLY = """
import os, pathlib, signal, sys, time
if os.environ["ECHELON_ATTEMPT"] == "0":
    signal.signal(signal.SIGUSR1, lambda *_: (print("saved", flush=True), sys.exit(75)))
    print("ready", flush=True)
    time.sleep(600)
"""


def test_preemption_gives_notice_to_ranks_that_handle_only_usr1(cluster, echelon):
    run = echelon.submit("-N", "2", "-p", "low", "--cold", echelon.script("usr1.py", USR1_ONLY))
    wait_for(lambda: "ready" in run.rank_log(0) and "ready" in run.rank_log(1), "both ranks")
    cluster.run("ctl", ["sbatch", "-p", "high", "-N4", "--exclusive", "--wrap", "sleep 1"])
    finished(run, "succeeded")
    assert [run.rank_log(rank) for rank in range(2)] == ["ready\nsaved\n"] * 2
    wait_for(lambda: not cluster.jobs(), "the job to leave the queue")  # 24.11 requeues it again after its end
