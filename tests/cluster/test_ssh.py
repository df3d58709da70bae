"""`--on ssh` on real sshds: hosts with homes and disks of their own, used from a machine that they cannot reach back."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from cluster import UID, Cluster
from node import wait_for
from running import ONCE_MORE
from running import SCRIPTS as RUNTIME_SCRIPTS
from tool import Tool

SCRIPTS = Path(__file__).parent / "scripts"
STEPS = RUNTIME_SCRIPTS / "steps.py"  # the checkout is at the same place on every host; the user's files are not
HIDDEN = "nobody may see this"
ALL = ("supervisor", "ssh", "bootstrap")
SETUP = ("--setup", "true")  # the least of an environment
LONG = ("--steps", "3000", "--seconds", "0.1")
NASTY = 'it\'s $HOME `id` "x" \\ ; rm -rf / #\nsecond line\t!'


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nodes=0, ssh_hosts=3) as up:
        yield up


def on(hosts, *flags):
    return ("--on", "ssh", "--hosts", hosts, "--python", sys.executable, *flags)


def two_by_two(*flags):
    return on("h1,h2", "-g", "2", "--cold", *flags)


def processes_on(cluster, *hosts):
    """By host, whatever runs there and is not sshd's own."""
    return {host: left for host in hosts if (left := cluster.nodes[host].leftovers())}


def wait_for_steps(run, rank, step=2, generation=0):
    wait_for(lambda: f"generation {generation} step {step}\n" in run.rank_log(rank), f"rank {rank} to take steps", 40)


def gone_within(cluster, seconds, *hosts):
    wait_for(lambda: not processes_on(cluster, *hosts), f"nothing to run on {hosts}", seconds)


def clients(cluster, host):
    return [
        p for p in cluster.leftovers().get("ctl", []) if p.command.startswith("ssh ") and f"-- {host} " in p.command
    ]


def agents_on(cluster, host):
    return [p for p in cluster.leftovers().get(host, []) if " remote " in p.command]


def supervisor_of(cluster):
    (found,) = [p for p in cluster.leftovers()["ctl"] if " supervise " in p.command]
    return found.pid


# Running


def test_two_hosts_that_share_nothing_train_together(cluster, echelon):
    for name in ("add_up.py", ".env"):
        shutil.copy(SCRIPTS / "add_up.py", echelon.folder / name)
    words = (NASTY, "", "--nodes", "5")
    result = echelon(
        "run", *on("h[1-2]", "-g", "2", "--snapshot", "--set", f"X_TOKEN={HIDDEN}"), "add_up.py", *words,
        env={"NASTY": NASTY, "HOST_ONLY": "x"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    for rank in range(4):
        host = "h1" if rank < 2 else "h2"
        assert f"[{rank}] sum 10.0 on {host}\n" in result.stdout
        assert repr((list(words), NASTY, HIDDEN)) in run.rank_log(rank)
        assert f"[{rank}] sum 10.0 on {host}\n" in (run.path / "attempt-0" / f"{host}.out").read_text()
    assert f"NASTY={NASTY!r}" in (run.path / "attempt-0" / "h1.env").read_text()
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"]]


def test_a_secret_is_in_no_command_and_in_no_file(cluster, echelon):
    waiting = echelon.script(
        "wait.py", "import os, time\nprint(len(os.environ['X_TOKEN']), flush=True)\ntime.sleep(600)\n"
    )
    run = echelon.submit(*on("h1", "--cold", "--snapshot", "--set", f"X_TOKEN={HIDDEN}"), waiting)
    wait_for(lambda: run.rank_log(0) == f"{len(HIDDEN)}\n", "the rank to run")
    seen = [p.command for host in ("ctl", "h1") for p in cluster.leftovers()[host]]
    assert any("echelon.pyz" in command for command in seen)
    assert not [command for command in seen if HIDDEN in command]
    places = [echelon.folder, cluster.home_of("h1"), Path(f"/proc/{cluster.processes('h1')[0].pid}/root/tmp")]
    found = [
        path for place in places for path in place.rglob("*") if path.is_file() and HIDDEN.encode() in path.read_bytes()
    ]
    assert found == []
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


def test_without_a_snapshot_the_script_must_be_there(echelon):
    echelon.script("train.py", "print(1)")
    result = echelon("run", *two_by_two(), "train.py")
    assert result.returncode == 5
    assert f"h1: no script at {echelon.folder}/train.py" in result.stderr
    assert f"h2: no script at {echelon.folder}/train.py" in result.stderr
    assert "try     --snapshot" in result.stderr


def test_what_a_shell_prints_at_login_does_no_harm(cluster, echelon):
    noisy = cluster.home_of("h1") / ".bashrc"
    noisy.write_text("echo welcome to h1; echo and to stderr >&2\n")
    result = echelon("run", *on("h1", "--cold"), STEPS)
    noisy.unlink()
    assert result.returncode == 0, result.stderr
    assert "welcome" not in result.stdout


def test_a_rank_that_writes_faster_than_the_connection_takes_waits(cluster, echelon):
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
    assert (run.path / "attempt-0" / "h1.out").read_text().splitlines()[-1] == f"[0] {lines[-1]}"


def test_the_next_attempt_starts_from_here_too(echelon):
    script = echelon.script("again.py", "import os, sys\nsys.exit(75 if os.environ['ECHELON_ATTEMPT'] == '0' else 0)\n")
    result = echelon("run", *on("h1,h2", "--cold", "--snapshot", "--requeues", "1"), script)
    assert result.returncode == 0, result.stderr
    assert [event["kind"] for event in echelon.only_run().events() if event["kind"] in ("requeued", "finished")] == [
        "requeued",
        "finished",
    ]


# Ends


def test_cancel_ends_a_submitted_run(cluster, echelon):
    run = echelon.submit(*two_by_two(), STEPS, *LONG)
    wait_for_steps(run, 3)
    assert run.status()["state"] == "RUNNING"
    assert echelon("cancel", run.id).returncode == 0
    gone_within(cluster, 5, "h1", "h2", "h3", "ctl")
    assert run.status()["state"] == "CANCELLED"


def test_a_failing_rank_has_its_verdict(echelon):
    result = echelon("run", *two_by_two(), STEPS, "--do", "raise", "--who", "2")
    assert result.returncode == 1
    assert "rank 2 on h2 raised ValueError: rank 2 is unhappy" in result.stderr
    assert 'raise ValueError(f"rank {rank} is unhappy")' in result.stderr


def test_a_killed_rank_costs_one_restart(echelon):
    result = echelon("run", *two_by_two("--restarts", "1"), STEPS, "--do", "kill", "--who", "3")
    assert result.returncode == 0, result.stderr
    (fault,) = echelon.only_run().events("fault")
    assert fault["fault"] == "rank 3 on h2 was killed by SIGKILL"


def test_stacks_of_a_hang_come_back(echelon):
    result = echelon("run", *two_by_two("--hang-timeout", "2s"), STEPS, "--do", "sleep")
    run = echelon.only_run()
    assert result.returncode == 1
    for rank in range(4):
        assert "steps.py" in (run.path / "attempt-0" / f"rank-{rank}.stacks").read_text()


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
def test_nothing_runs_on_after_its_connection(cluster, echelon, who, inside):
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
        assert "was lost" in run.wait()["fault"]


def test_a_torn_connection_is_made_anew(cluster, echelon):
    run = echelon.submit(*two_by_two("--restarts", "1"), STEPS, *ONCE_MORE)
    wait_for_steps(run, 3)
    os.kill(clients(cluster, "h2")[0].pid, signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"], ["h1", "h2"]]


def test_nothing_runs_on_of_a_start_that_was_cut_short(cluster, echelon):
    """The supervisor is killed while torch is still being imported."""
    run = echelon.submit(*on("h1,h2", "-g", "2"), STEPS)
    starting = wait_for(lambda: [p for p in cluster.leftovers().get("h2", []) if " warm " in p.command], "a starter")
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
    starters = [p for p in cluster.leftovers()["h2"] if " warm " in p.command]
    os.kill(agent.pid, signal.SIGSTOP)  # or it would replace its starter
    for process in (*(starters if starter_too else ()), agent):
        os.kill(process.pid, signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["fault"] for event in run.events("fault")] == ["h2 was lost: its agent died"]


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


def test_a_spare_host_takes_the_place_of_a_lost_one(cluster, echelon):
    run = echelon.submit(
        *on("h1,h2,h3", "-N", "2", "--spare-nodes", "1", "-g", "2", "--cold", "--heartbeat", "2s"),
        STEPS, *ONCE_MORE,
    )  # fmt: skip
    wait_for_steps(run, 3)
    cluster.power_off("h2")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"], ["h1", "h3"]]
    assert "h2 was lost: it fell silent" in run.events("fault")[0]["fault"]


def test_without_a_spare_the_run_goes_on_smaller(cluster, echelon):
    run = echelon.submit(
        *two_by_two("--min-nodes", "1", "--heartbeat", "2s"),
        STEPS,
        *ONCE_MORE,
    )
    wait_for_steps(run, 3)
    cluster.power_off("h1")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["h1", "h2"], ["h2"]]


def test_with_too_few_hosts_left_the_run_fails_and_names_the_lost(cluster, echelon):
    run = echelon.submit(*two_by_two("--restarts", "3", "--heartbeat", "2s"), STEPS, *LONG)
    wait_for_steps(run, 3)
    cluster.power_off("h2")
    end = run.wait()
    assert end["outcome"] == "failed"
    assert "1 of 2 nodes are left (lost: h2)" in end["reason"]
    gone_within(cluster, 5, "h1")


def test_a_link_that_is_cut_for_a_moment_costs_nothing(cluster, echelon):
    run = echelon.submit(*two_by_two(), STEPS, "--steps", "60", "--seconds", "0.1")
    wait_for_steps(run, 3)
    cluster.cut("h2")
    time.sleep(3)
    cluster.heal("h2")
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("generation")) == 1


# Hosts that cannot be used


def test_all_that_is_wrong_is_said_at_once(cluster, echelon):
    """Down, refused, a changed key, an unknown name, no torch, a wrong clock: one error within ten seconds."""
    configure(cluster, changed=cluster.home_of("h2").parent.parent / "h3" / "key.pub")
    cluster.power_off("h1")
    fast, login = wrong_clock(cluster, "h2", "python3"), cluster.home_of("h2") / ".bashrc"
    login.write_text("PATH=$HOME:$PATH\n")
    began = time.monotonic()
    result = echelon("run", "--on", "ssh", "--hosts", "h1,refusing,changed,nobody,h3,h2", STEPS)
    took = time.monotonic() - began
    for file in (cluster.home / ".ssh" / "config", fast, login):
        file.unlink()
    assert result.returncode == 5
    assert "6 of 6 hosts cannot be used" in result.stderr
    for words in (
        "h1: it does not answer", "ssh: connect to host h1 port 22: ",
        "refusing: it refuses connections", "Connection refused",
        "changed: its host key has changed", "ssh-keygen -R changed",
        "nobody: nobody knows that name", "Could not resolve hostname",
        "h3: the Python there has no torch: /usr/bin/python3", "--python PATH",
        "h2: its clock is 90 s ahead of ours", "set its clock",
    ):  # fmt: skip
        assert words in result.stderr, result.stderr
    assert took < 12
    assert echelon.only_run().events("generation") == []


def configure(cluster, changed):
    """Names of the user's own for hosts that misbehave."""
    config = cluster.home / ".ssh" / "config"
    known = cluster.home / ".ssh" / "changed_hosts"
    known.write_text(f"changed {changed.read_text()}")
    config.write_text(
        "Host refusing\n  HostName h2\n  HostKeyAlias h2\n  Port 2222\n"
        f"Host changed\n  HostName h2\n  UserKnownHostsFile {known}\n  HostKeyAlias changed\n"
    )
    for file in (config, known):
        os.chown(file, UID, UID)


def test_a_host_that_is_down_is_passed_over_where_others_are_enough(cluster, echelon):
    cluster.power_off("h1")
    result = echelon("run", *on("h1,h2,h3", "-N", "2", "--spare-nodes", "1", "--cold"), STEPS)
    assert result.returncode == 0, result.stderr
    assert [event["hosts"] for event in echelon.only_run().events("generation")] == [["h2", "h3"]]
    assert "warning: h1 is left out: it does not answer" in result.stderr


def wrong_clock(cluster, host, name):
    """A Python whose clock is wrong until it has answered stands in for the host's."""
    python = cluster.home_of(host) / name
    python.write_text(
        f"#!{sys.executable} -I\nimport sys, time\nright = time.time\ntime.time = lambda: right() + 90\nexec(sys.argv[3])\n"
    )
    python.chmod(0o755)
    return python


def test_a_host_with_a_wrong_clock_is_passed_over_where_others_are_enough(cluster, echelon):
    python = wrong_clock(cluster, "h1", "python")
    (cluster.home_of("h2") / "python").symlink_to(sys.executable)
    options = ("--on", "ssh", "--python", "./python", "--cold")
    alone = echelon("run", *options, "--hosts", "h1", "--", "true")
    both = echelon("run", *options, "--hosts", "h1,h2", "-N", "1", "--spare-nodes", "1", "--", "true")
    for file in (python, cluster.home_of("h2") / "python"):
        file.unlink()
    assert alone.returncode == 5, alone.stderr
    assert "h1: its clock is 90 s ahead of ours" in alone.stderr
    assert "try     set its clock" in alone.stderr
    assert both.returncode == 0, both.stderr
    assert "warning: h1 is left out: its clock is 90 s ahead of ours" in both.stderr


def test_an_interface_that_is_not_there_is_named(echelon):
    result = echelon("run", *on("h1,h2", "--cold", "--interface", "ib7"), STEPS)
    assert result.returncode == 3
    assert "no interface ib7 with an address on h" in result.stderr


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
