"""A run on a real Slurm that is told to stop: by its time limit, an administrator, a preemption; and it comes back."""

from running import Run, wait_for
from slurm_story import SAVE, TRAIN, finished, native_id, waiting
from taken import samples, undisturbed


def weights(run: Run, attempt: int) -> str:
    (line,) = [line for line in run.rank_log(0, attempt).splitlines() if line.startswith("weights ")]
    return line


def test_the_time_limit_with_notice_checkpoint_requeue_and_resume(cluster, echelon):
    size = ["-N", "2", "--procs-per-node", "2"]
    policy = ["--time", "60s", "--notice", "25s", "--requeues", "4"]
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


def test_an_administrator_requeues_the_job(cluster, echelon):
    state, go = echelon.folder / "state", echelon.folder / "go"
    run = echelon.submit("-N", "2", TRAIN, "--samples", "20", "--state", state, "--wait-for", go)
    waiting(run)
    cluster.run("ctl", ["scontrol", "requeue", native_id(run)], user="root")
    wait_for(lambda: run.events("requeued"), "the requeue to be noticed")
    go.touch()
    finished(run, "succeeded")
    assert [event["attempt"] for event in run.events("started")] == [0, 1]
    assert samples(run, 2, 2)[-12:] == undisturbed(20)[-12:]


def test_where_requeueing_is_not_allowed_a_successor_follows(cluster, echelon):
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


def test_a_scancel_by_hand_is_the_end(cluster, echelon):
    """Ranks die of the same TERM as in a preemption, and yet the job does not come back."""
    run = echelon.submit("-N", "2", "--requeues", "3", TRAIN, "--samples", "600")
    waiting(run)
    cluster.run("ctl", ["scancel", native_id(run)])
    wait_for(lambda: not cluster.jobs(), "the job to leave the queue")
    assert run.status()["state"] == "CANCELLED"
    assert run.events("requeued") == []


def test_preemption_gives_notice_and_the_run_comes_back(cluster, echelon):
    """Slurm tells every process of the job, ranks too; the library outlives that, saves, and goes on later."""
    run = echelon.submit("-N", "2", "-p", "low", SAVE, "--samples", "120", "--seconds", "0.1")
    waiting(run)
    cluster.run("ctl", ["sbatch", "-p", "high", "-N4", "--exclusive", "--wrap", "sleep 1"])
    requeued = wait_for(lambda: run.events("requeued"), "the requeue")[0]
    assert requeued["counts"] is False
    finished(run, "succeeded")
    assert samples(run, 2, 2) == undisturbed(120)
