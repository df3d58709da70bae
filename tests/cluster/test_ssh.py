"""`--on ssh` with real sshds: separate homes and disks, started from a machine that the hosts cannot connect to."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from cluster import UID, Cluster
from node import wait_for
from ssh_hosts import (
    LONG,
    STEPS,
    agents_on,
    clients,
    on,
    two_by_two,
    wait_for_steps,
)
from tool import Tool

SCRIPTS = Path(__file__).parent / "scripts"
HIDDEN = "nobody may see this"
NASTY = 'it\'s $HOME `id` "x" \\ ; rm -rf / #\nsecond line\t!'


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nodes=0, ssh_hosts=3) as up:
        yield up


def test_two_hosts_that_share_nothing_train_together(cluster, echelon):
    for name in ("add_up.py", ".env"):
        shutil.copy(SCRIPTS / "add_up.py", echelon.folder / name)
    words = (NASTY, "", "--nodes", "5")
    result = echelon(
        "run",
        *on("h[1-2]", "-g", "2", "--snapshot", "--set", f"X_TOKEN={HIDDEN}"),
        "add_up.py",
        *words,
        env={"NASTY": NASTY, "HOST_ONLY": "x"},
    )
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    for rank in range(4):
        host = "h1" if rank < 2 else "h2"
        assert f"[{rank}] sum 10.0 on {host}\n" in result.stdout
        assert repr((list(words), NASTY, HIDDEN)) in run.rank_log(rank)
        assert f"[{rank}] sum 10.0 on {host}\n" in echelon("logs", "--node", host, run.id).stdout
    assert f"NASTY={NASTY!r}" in (run.path / "attempt-0" / "h1.env").read_text()
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"]]


def test_secret_is_not_in_commands_or_files(cluster, echelon):
    waiting = echelon.script(
        "wait.py", "import os, time\nprint(len(os.environ['X_TOKEN']), flush=True)\ntime.sleep(600)\n"
    )
    run = echelon.submit(*on("h1", "--cold", "--snapshot", "--set", f"X_TOKEN={HIDDEN}"), waiting)
    wait_for(lambda: run.rank_log(0) == f"{len(HIDDEN)}\n", "the rank to run")
    seen = [p.command for host in ("ctl", "h1") for p in cluster.leftovers()[host]]
    assert any("echelon.pyz" in command for command in seen)
    assert not [command for command in seen if HIDDEN in command]
    root = Path(f"/proc/{cluster.processes('h1')[0].pid}/root")
    on_host = [root / path.relative_to("/") for path in cluster.debris()["h1"]]  # not the clone, which may lie in /tmp
    assert on_host
    files = [path for place in (echelon.folder, cluster.home_of("h1"), *on_host) for path in place.rglob("*")]
    assert [path for path in files if path.is_file() and HIDDEN.encode() in path.read_bytes()] == []
    echelon("cancel", run.id)


def test_a_shared_folder_is_used_and_nothing_is_copied(cluster):
    tool = Tool(cluster, cluster.make_folder(cluster.scratch))
    script = tool.script("here.py", STEPS.read_text())
    run = tool.submit(*two_by_two(), script, *LONG)
    wait_for_steps(run, 3)
    (agent,) = agents_on(cluster, "h2")
    assert f" {run.path}/echelon.pyz remote " in agent.command
    assert tool("cancel", run.id).returncode == 0
    assert "generation 0 step 0\n" in run.rank_log(2)


def test_script_must_exist_on_the_host_without_a_snapshot(echelon):
    echelon.script("train.py", "print(1)")
    result = echelon("run", *two_by_two(), "train.py")
    assert result.returncode == 5
    assert f"h1: no script at {echelon.folder}/train.py" in result.stderr
    assert f"h2: no script at {echelon.folder}/train.py" in result.stderr
    assert "try     --snapshot" in result.stderr


def test_login_output_of_the_shell_is_ignored(cluster, echelon):
    noisy = cluster.home_of("h1") / ".bashrc"
    noisy.write_text("echo welcome to h1; echo and to stderr >&2\n")
    result = echelon("run", *on("h1", "--cold"), STEPS)
    noisy.unlink()
    assert result.returncode == 0, result.stderr
    assert "welcome" not in result.stdout


def test_rank_waits_if_its_output_exceeds_the_connection(cluster, echelon):
    flood = echelon.script("flood.py", "for i in range(400_000): print(i, 'x' * 60)\n")
    run = echelon.submit(*on("h1", "--cold", "--snapshot"), flood)
    wait_for(lambda: len(run.rank_log(0)) > 1 << 20, "output")
    (client,) = clients(cluster, "h1")
    os.kill(client.pid, signal.SIGSTOP)
    (agent,) = agents_on(cluster, "h1")
    time.sleep(3)  # while nothing gets through
    status = Path(f"/proc/{agent.pid}/status").read_text()
    os.kill(client.pid, signal.SIGCONT)
    held = int(status.split("VmRSS:")[1].split()[0])
    assert held < 64 << 10, f"{held} kB"
    assert run.wait()["outcome"] == "succeeded"
    lines = run.rank_log(0).splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(400_000))
    assert echelon("logs", "--node", "h1", run.id).stdout.splitlines()[-1] == f"[0] {lines[-1]}"


def test_next_attempt_starts_from_the_same_machine(echelon):
    script = echelon.script("again.py", "import os, sys\nsys.exit(75 if os.environ['ECHELON_ATTEMPT'] == '0' else 0)\n")
    result = echelon("run", *on("h1,h2", "--cold", "--snapshot", "--requeues", "1"), script)
    assert result.returncode == 0, result.stderr
    assert [event["kind"] for event in echelon.only_run().events() if event["kind"] in ("requeued", "finished")] == [
        "requeued",
        "finished",
    ]


# Naming hosts


def test_hosts_come_from_a_file_or_a_group(echelon):
    (echelon.folder / "hosts.txt").write_text("# the lab\nh1 slots=2  # old\n\nh2 slots=2\n")
    result = echelon("run", "--on", "ssh", "--hostfile", "hosts.txt", "--python", sys.executable, "--cold", STEPS)
    assert result.returncode == 0, result.stderr
    assert "2 nodes x 2 ranks" in result.stderr
    (echelon.folder / "echelon.toml").write_text('on = "ssh"\n[hosts]\nlab = ["h2", "h3"]\n')
    result = echelon("run", "--hosts", "lab", "--python", sys.executable, "--cold", STEPS)
    assert result.returncode == 0, result.stderr
    assert "over ssh on h2, h3, 2 nodes x 1 rank" in result.stderr


def test_a_connection_that_the_user_keeps_open_is_used(cluster, echelon):
    config = cluster.home / ".ssh" / "config"
    config.write_text("Host h1\n  ControlPath ~/.ssh/to-%h\n  ControlMaster auto\n  ControlPersist 60\n")
    os.chown(config, UID, UID)
    cluster.run("ctl", ["ssh", "-f", "-N", "h1"], stdout=None, stderr=None)
    authorized = cluster.home_of("h1") / ".ssh" / "authorized_keys"
    authorized.rename(authorized.with_name("away"))  # whoever is not in by now stays out
    result = echelon("run", *on("h1", "--cold"), STEPS)
    authorized.with_name("away").rename(authorized)
    cluster.run("ctl", ["ssh", "-O", "exit", "h1"])
    config.unlink()
    assert result.returncode == 0, result.stderr
