"""Runs on a real Slurm, from submission on the login node to the end. No process is left."""

import json
import shlex
import sys
from pathlib import Path

from running import Run, wait_for
from slurm_story import TRAIN, finished, waiting
from taken import samples, undisturbed

NASTY = ["--flag=a b", "it's", '"quoted"', "$HOME", "`id`", "a\\b", "*", "", "new\nline", "ünï", "--", "-N", "5", "a,b"]


def test_run_is_followed_from_submission_to_end(cluster, echelon):
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


def test_queued_job_shows_its_reason_and_can_be_cancelled(cluster, echelon):
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


WAITS = """
import os, time
deadline = time.time() + 60
while time.time() < deadline and not os.path.exists("leave"):
    time.sleep(0.01)
"""


def test_warning_about_the_nodes_is_shown_once(echelon):
    with (echelon.folder / "said").open("w+") as said:
        flags = ("-g", "2", "--cpus", "1", "--cold")
        process = echelon.start("run", *flags, echelon.script("train.py", WAITS), stdout=said, stderr=said)
    wait_for(lambda: "warning: 2 ranks share 1 CPU on each node" in Path(said.name).read_text(), "the warning")
    assert process.poll() is None
    (echelon.folder / "leave").touch()
    assert process.wait(60) == 0
    assert Path(said.name).read_text().count("ranks share") == 1


def test_cancel_gives_ranks_the_grace_period(echelon):
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


def test_special_characters_stay_quoted_everywhere(echelon):
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


def test_requested_network_interface_is_used(echelon):
    script = echelon.script(
        "train.py", "import os\nprint(os.environ.get('GLOO_SOCKET_IFNAME'), os.environ['MASTER_ADDR'], flush=True)\n"
    )
    result = echelon("run", "-N", "2", "--cold", "--interface", "eth0", script)
    assert "[1] eth0 10.77." in result.stdout
    assert "[echelon] GLOO_SOCKET_IFNAME=eth0, NCCL_SOCKET_IFNAME==eth0" in result.stdout
    result = echelon("run", "-N", "2", "--cold", "--interface", "ib0", script)
    assert result.returncode == 3
    assert "no interface ib0 with an address on n1" in result.stderr


def test_submit_from_inside_another_job(cluster, echelon):
    """Its size, its place and its ranks are not inherited; a run inside of it uses it."""
    submit = shlex.join(echelon.argv("submit", "-N", "2", TRAIN, "--samples", "8"))
    inner = f"{submit} > id && srun -n1 -N1 sleep 1"
    outer = echelon.script("outer.sh", f"#!/bin/bash\n#SBATCH -N1 -n3 --cpus-per-task=2 --output=outer.out\n{inner}\n")
    cluster.run("ctl", ["sbatch", "-W", outer], cwd=echelon.folder, env=echelon.env)
    run = Run(echelon, (echelon.folder / "id").read_text().strip())
    finished(run, "succeeded")
    assert run.events("generation")[0]["hosts"] != []
    assert len(run.events("generation")[0]["hosts"]) == 2


def test_run_inside_an_allocation_submits_nothing(cluster, echelon):
    argv = ["salloc", "-N2", "--gpus-per-node=2", *echelon.argv("run", TRAIN, "--samples", "12")]
    result = cluster.run("ctl", argv, cwd=echelon.folder, env=echelon.env, check=False, timeout=90)
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert run.events("generation")[0]["hosts"] == ["n1", "n2"]
    assert samples(run, 4) == undisturbed(12)
    assert len(cluster.run("ctl", ["squeue", "-h", "-a", "-t", "all"]).stdout.splitlines()) >= 1


def test_library_joins_under_plain_srun(cluster, echelon):
    argv = ["srun", "-N2", "--ntasks-per-node=2", "--cpus-per-task=1", sys.executable, TRAIN, "--samples", "12"]
    result = cluster.run("ctl", argv, cwd=echelon.folder, env=echelon.env, check=False)
    assert result.returncode == 0, result.stderr
    taken = [int(line.split()[-1]) for line in result.stdout.splitlines() if line.startswith("step ")]
    assert sorted(taken) == list(range(12))


def test_array_has_a_run_for_each_index(echelon):
    result = echelon("submit", "-N", "1", "--array", "3-4", TRAIN, "--samples", "8")
    assert result.returncode == 0, result.stderr
    runs = [Run(echelon, line) for line in result.stdout.split()]
    assert len(runs) == 2
    for run in runs:
        finished(run, "succeeded")
        assert samples(run, 1) == undisturbed(8)


def test_error_of_sbatch_is_shown_unchanged(echelon):
    result = echelon("submit", "-N", "2", "-p", "nowhere", TRAIN)
    assert result.returncode == 4
    assert "invalid partition specified: nowhere" in result.stderr
    assert list(echelon.folder.glob("runs/*")) == []
