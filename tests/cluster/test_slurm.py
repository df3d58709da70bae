"""The story of a user on a real Slurm: from the login node, on nodes that fail, and nothing is left behind."""

import json
import sys
from pathlib import Path

import pytest

from running import Run, wait_for
from taken import samples, steps, undisturbed

SCRIPTS = Path(__file__).parent / "scripts"
TRAIN, SAVE = SCRIPTS / "train.py", SCRIPTS / "save.py"
NASTY = ["--flag=a b", "it's", '"quoted"', "$HOME", "`id`", "a\\b", "*", "", "new\nline", "ünï", "--", "-N", "5", "a,b"]


def native_id(run: Run) -> str:
    return (run.path / "native_id").read_text().strip()


def kill_rank(cluster, run: Run, rank: int) -> None:
    """The pid of the event is the node's own; its node's processes are known by their machine-wide pids."""
    pid = run.pid_of(rank)
    host = next(event["hosts"] for event in run.events("generation"))[rank // 2]
    cluster.run(host, ["kill", "-KILL", str(pid)])


def waiting(run: Run, rank: int = 0) -> None:
    """Until the ranks stand still where --wait-for holds them."""
    wait_for(lambda: any(line.startswith("step 3 ") for line in steps(run, rank)), f"step 3 of rank {rank}")


def finished(run: Run, outcome: str, seconds: float = 90) -> dict:
    event = wait_for(lambda: run.events("finished"), "the end of the run", seconds)[-1]
    assert event["outcome"] == outcome, (event, (run.path / "job.out").read_text())
    return event


def test_a_run_from_the_login_node_to_its_end(cluster, echelon):
    result = echelon("run", "-N", "2", "-g", "2", "--name", "gpt", TRAIN, "--samples", "12")
    assert result.returncode == 0, result.stderr
    assert "Slurm job " in result.stderr
    assert "2 nodes x 2 ranks, 2 GPUs each" in result.stderr
    lines = result.stdout.splitlines()
    assert "[0] on n1 with '0,1', from 0" in lines
    assert "[3] on n2 with '0,1', from 0" in lines
    assert sum(line.endswith("done") for line in lines) == 4
    run = echelon.only_run()
    assert sorted(samples(run, 4)) == list(range(12))
    status = run.status()
    assert (status["state"], status["exit_code"]) == ("SUCCEEDED", 0)


def test_a_job_that_waits_says_why_and_can_be_cancelled(cluster, echelon):
    hold = cluster.run("ctl", ["sbatch", "--parsable", "-N4", "--exclusive", "--wrap", "sleep 60"]).stdout.strip()
    wait_for(lambda: "RUNNING" in cluster.run("ctl", ["squeue", "-h", "-o", "%T"]).stdout, "the job in the way")
    with (echelon.folder / "said").open("w+") as said:
        process = echelon.start("run", "-N", "2", TRAIN, stdout=said, stderr=said)
    run = wait_for(lambda: [Run(echelon, path.name) for path in echelon.folder.glob("runs/*")], "the run")[0]
    wait_for(lambda: run.events("submitted"), "the run to be submitted")
    status = wait_for(lambda: (now := run.status())["native"] and now["reason"] and now, "Slurm's reason")
    assert status["state"] == "QUEUED"
    assert "nodes" in status["reason"] or "priority" in status["reason"]
    wait_for(lambda: status["reason"] in Path(said.name).read_text(), "the reason to be said to who follows")
    assert echelon("cancel", run.id).returncode == 0
    assert process.wait(30) != 0
    assert run.status()["state"] == "CANCELLED"
    cluster.run("ctl", ["scancel", hold])


def test_cancelling_gives_the_ranks_their_grace(echelon):
    script = echelon.script(
        "train.py",
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('goodbye', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n",
    )
    run = echelon.submit("-N", "2", "--cold", script)
    wait_for(lambda: "ready" in run.rank_log(0) and "ready" in run.rank_log(1), "both ranks")
    assert echelon("cancel", run.id).returncode == 0
    assert finished(run, "cancelled")["exit_code"] == 143
    assert "goodbye" in run.rank_log(0)
    assert "goodbye" in run.rank_log(1)
    assert run.status()["state"] == "CANCELLED"


def test_a_failing_rank_is_the_verdict(echelon):
    result = echelon("run", "-N", "2", "--procs-per-node", "2", TRAIN, "--fail", "3")
    assert result.returncode == 1
    assert "rank 3 on n2 raised ValueError: this rank was told to fail" in result.stderr
    why = echelon("why", echelon.only_run().id)
    assert "rank 3 on n2" in why.stdout


def test_a_killed_rank_costs_a_generation_and_nothing_else(cluster, echelon):
    go = echelon.folder / "go"
    options = ["-N", "2", "--procs-per-node", "2", "--restarts", "1"]
    run = echelon.submit(*options, TRAIN, "--samples", "24", "--wait-for", go, "--state", echelon.folder / "state")
    waiting(run)
    kill_rank(cluster, run, 2)
    wait_for(lambda: len(run.events("generation")) == 2, "the next generation")
    go.touch()
    finished(run, "succeeded")
    (fault,) = run.events("fault")
    assert fault["fault"] == "rank 2 on n2 was killed by SIGKILL"


@pytest.mark.parametrize("way", ["spare", "smaller"])
def test_a_node_without_power(cluster, echelon, way):
    go = echelon.folder / "go"
    room = ["--spare-nodes", "1"] if way == "spare" else ["--min-nodes", "1"]
    options = ["-N", "2", *room, "--procs-per-node", "2", "--heartbeat", "4s"]
    run = echelon.submit(*options, TRAIN, "--samples", "24", "--wait-for", go, "--state", echelon.folder / "state")
    waiting(run)
    (cluster.power_off if way == "spare" else cluster.shut_down)("n2")
    generation = wait_for(lambda: run.events("generation")[1:], "the next generation")[0]
    assert generation["hosts"] == (["n1", "n3"] if way == "spare" else ["n1"])
    go.touch()
    finished(run, "succeeded")
    (fault,) = run.events("fault")
    assert fault["fault"] == f"n2 was lost: {'it fell silent' if way == 'spare' else 'its agent died'}"


def test_a_node_without_power_and_nothing_to_replace_it(cluster, echelon):
    """The next attempt gets other nodes."""
    go = echelon.folder / "go"
    options = ["-N", "2", "--requeues", "1", "--heartbeat", "4s"]
    run = echelon.submit(*options, TRAIN, "--samples", "20", "--wait-for", go, "--state", echelon.folder / "state")
    waiting(run)
    cluster.power_off("n2")
    wait_for(lambda: run.events("requeued"), "the requeue")
    go.touch()
    finished(run, "succeeded")
    assert [event["attempt"] for event in run.events("started")] == [0, 1]
    hosts = [event["hosts"] for event in run.events("generation")]
    assert hosts[0] == ["n1", "n2"]
    assert "n2" not in hosts[1]


def test_a_link_that_is_cut_for_three_seconds_costs_nothing(cluster, echelon):
    run = echelon.submit("-N", "2", "--heartbeat", "10s", TRAIN, "--samples", "60")
    waiting(run)
    cluster.cut("n2")
    cluster.run("ctl", ["sleep", "3"])
    cluster.heal("n2")
    finished(run, "succeeded")
    assert len(run.events("generation")) == 1
    assert run.events("fault") == []


def test_the_first_node_is_lost(cluster, echelon):
    """Its supervisor is gone; the job comes back on other nodes."""
    go = echelon.folder / "go"
    state = echelon.folder / "state"
    options = ["-N", "2", "--heartbeat", "4s", "--requeues", "1"]
    run = echelon.submit(*options, TRAIN, "--samples", "20", "--wait-for", go, "--state", state)
    waiting(run)
    before = json.loads(state.read_text())["consumed"]
    cluster.power_off("n1")
    wait_for(lambda: len(run.events("started")) == 2, "the next attempt", 90)
    go.touch()
    finished(run, "succeeded")
    assert "n1" not in run.events("generation")[-1]["hosts"]
    assert f"from {before}" in run.rank_log(0, attempt=1)


def test_the_first_node_is_cut_off_and_commits_nothing_more(cluster, echelon):
    """Its supervisor ends what it has, though it still sees the run's folder; the job comes back on other nodes."""
    options = ["-N", "2", "--heartbeat", "4s", "--requeues", "1"]
    run = echelon.submit(*options, SAVE, "--samples", "160", "--seconds", "0.1")
    wait_for(lambda: "step 12 " in run.rank_log(0), "a checkpoint")
    cluster.cut("n1")
    began = wait_for(lambda: run.events("started")[1:], "the next attempt", 90)[0]["time"]
    finished(run, "succeeded")
    assert "n1" not in run.events("generation")[-1]["hosts"]
    reasons = [event["reason"] for event in run.events("requeued")]  # the agents tell of it, too, and may be first
    assert any("n1 is cut off" in reason for reason in reasons), reasons
    ours = [process for process in cluster.processes("n1") if "save.py" in process.command]
    assert ours == [], "ranks of a supervisor that nobody hears"
    assert {event["attempt"] for event in run.events("checkpoint") if event["time"] > began} == {1}
    (saved,) = [int(line.split()[1]) for line in run.rank_log(0, attempt=1).splitlines() if line.startswith("from ")]
    assert saved > 0
    assert samples(run, 2, 2)[2 * saved - 160 :] == undisturbed(160)[2 * saved :]


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


def weights(run: Run, attempt: int) -> str:
    (line,) = [line for line in run.rank_log(0, attempt).splitlines() if line.startswith("weights ")]
    return line


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


def test_two_runs_on_the_same_nodes(cluster, echelon):
    go = echelon.folder / "go"
    runs = [
        echelon.submit("-N", "2", "--cpus", "2", "--nodelist", "n1,n2", TRAIN, "--samples", "20", "--wait-for", go)
        for _ in range(2)
    ]
    for run in runs:
        waiting(run)
    go.touch()
    for run in runs:
        finished(run, "succeeded")
        assert samples(run, 2) == undisturbed(20)
        assert run.events("generation")[0]["hosts"] == ["n1", "n2"]


def test_names_arguments_and_variables_that_try_to_break_out(echelon):
    script = echelon.script(
        "it's a $(touch broken).py",
        "import json, os, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    print(json.dumps([sys.argv[1:], os.environ['NASTY'], os.environ['THE_TOKEN']]), flush=True)\n",
    )
    value = "a,b 'c' \"d\" $HOME\nnext\\"
    result = echelon(
        "run", "-N", "2", "--cold", "--set", f"NASTY={value}", "--set", "THE_TOKEN=s3cret,$x", script, *NASTY
    )
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert json.loads(run.rank_log(1)) == [NASTY, value, "s3cret,$x"]
    assert list(echelon.folder.glob("broken")) == []
    assert not any(
        b"s3cret" in path.read_bytes()
        for path in run.path.rglob("*")
        if path.is_file() and path.name != "rank-1.out" and path.suffix != ".out"
    )
    bad = echelon("render", "--slurm", "comment=a\n#SBATCH --nodes=9", TRAIN)
    assert bad.returncode == 2
    assert "control character" in bad.stderr


def test_the_network_that_was_asked_for(echelon):
    script = echelon.script(
        "train.py", "import os\nprint(os.environ.get('GLOO_SOCKET_IFNAME'), os.environ['MASTER_ADDR'], flush=True)\n"
    )
    result = echelon("run", "-N", "2", "--cold", "--interface", "eth0", script)
    assert "[1] eth0 10.77." in result.stdout
    assert "[echelon] GLOO_SOCKET_IFNAME=eth0, NCCL_SOCKET_IFNAME==eth0" in result.stdout
    result = echelon("run", "-N", "2", "--cold", "--interface", "ib0", script)
    assert result.returncode == 3
    assert "no interface ib0 with an address on n1" in result.stderr


def test_submitting_from_inside_of_another_job(cluster, echelon):
    """Its size, its place and its ranks are not inherited; a run inside of it uses it."""
    inner = f"{sys.executable} -m echelon submit -N 2 {TRAIN} --samples 8 > id && srun -n1 -N1 sleep 1"
    outer = echelon.script("outer.sh", f"#!/bin/bash\n#SBATCH -N1 -n3 --cpus-per-task=2 --output=outer.out\n{inner}\n")
    cluster.run("ctl", ["sbatch", "-W", outer], cwd=echelon.folder, env=echelon.env)
    run = Run(echelon, (echelon.folder / "id").read_text().strip())
    finished(run, "succeeded")
    assert run.events("generation")[0]["hosts"] != []
    assert len(run.events("generation")[0]["hosts"]) == 2


def test_inside_of_an_allocation_nothing_is_submitted(cluster, echelon):
    argv = ["salloc", "-N2", "--gpus-per-node=2", *echelon.argv("run", TRAIN, "--samples", "12")]
    result = cluster.run("ctl", argv, cwd=echelon.folder, env=echelon.env, check=False, timeout=90)
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert run.events("generation")[0]["hosts"] == ["n1", "n2"]
    assert samples(run, 4) == undisturbed(12)
    assert len(cluster.run("ctl", ["squeue", "-h", "-a", "-t", "all"]).stdout.splitlines()) >= 1


def test_the_library_finds_its_way_under_plain_srun(cluster, echelon):
    argv = ["srun", "-N2", "--ntasks-per-node=2", "--cpus-per-task=1", sys.executable, TRAIN, "--samples", "12"]
    result = cluster.run("ctl", argv, cwd=echelon.folder, env=echelon.env, check=False)
    assert result.returncode == 0, result.stderr
    taken = [int(line.split()[-1]) for line in result.stdout.splitlines() if line.startswith("step ")]
    assert sorted(taken) == list(range(12))


def test_an_array_is_a_run_for_each_index(echelon):
    result = echelon("submit", "-N", "1", "--array", "3-4", TRAIN, "--samples", "8")
    assert result.returncode == 0, result.stderr
    runs = [Run(echelon, line) for line in result.stdout.split()]
    assert len(runs) == 2
    for run in runs:
        finished(run, "succeeded")
        assert samples(run, 1) == undisturbed(8)


def test_sbatch_refuses_in_its_own_words(echelon):
    result = echelon("submit", "-N", "2", "-p", "nowhere", TRAIN)
    assert result.returncode == 4
    assert "invalid partition specified: nowhere" in result.stderr
    assert list(echelon.folder.glob("runs/*")) == []
