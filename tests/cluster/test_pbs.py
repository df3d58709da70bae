"""Runs on PBS: a stand-in for the server and its tools, with real processes on separate hosts."""

import json
import os
import shlex
import signal
from pathlib import Path

import pytest

from node import wait_for
from pbs.server import Server
from pbs.using import nothing_runs, qsub, use
from running import ONCE_MORE, SCRIPTS

STEPS = SCRIPTS / "steps.py"


# Submit, wait, run, succeed

ALL_REDUCE = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(socket.gethostname(), "sum", total.item(), "threads", os.environ["OMP_NUM_THREADS"], flush=True)
dist.destroy_process_group()
"""


def test_queued_run_shows_its_reason_then_trains_on_two_hosts(echelon, pbs, cluster):
    blocker = qsub(pbs, echelon.folder, "sleep 600", "-l", "select=3:ncpus=8", "-l", "place=scatter")
    run = echelon.submit("-N", "2", "-g", "2", "--cpus", "4", echelon.script("train.py", ALL_REDUCE))
    reason = wait_for(lambda: run.status()["reason"], "a reason")
    assert (run.status()["state"], reason) == ("QUEUED", "not enough ncpus")
    cluster.run("ctl", ["qdel", blocker], env={"PATH": echelon.env["PATH"]})
    assert run.wait()["outcome"] == "succeeded"
    nothing_runs(cluster)
    logs = echelon("logs", run.id).stdout.splitlines()
    assert sorted(line.split("] ")[-1] for line in logs if "sum" in line) == [
        f"{host} sum 10.0 threads 2" for host in ("n1", "n1", "n2", "n2")
    ]
    assert len({line.partition("]")[0] for line in logs if "sum" in line}) == 4, "each line has its rank"
    assert (run.path / "attempt-0" / "exit_code").read_text() == "0\n"
    assert not (run.path / "environment.sealed").exists()


TELL = """
import json, os, sys
names = ("GREETING", "API_TOKEN", "NOT_UTF8", "PBS_NODENUM", "ECHELON_SEAL")
told = {name: os.environ.get(name) for name in names}
print(json.dumps({**told, "argv": sys.argv[1:], "cwd": os.getcwd(), "path": os.environ["PATH"]}))
"""


@pytest.mark.parametrize(("hosts", "tools"), [(1, ("qsub", "qstat", "qdel")), (2, ("qsub", "qstat", "qdel", "pbsdsh"))])
def test_special_characters_stay_quoted_and_variables_are_passed(cluster, echelon, hosts, tools):
    folder = echelon.folder / 'it\'s $HOME, 100% "#1"; exit 9'
    folder.mkdir()
    os.chown(folder, *(getattr(echelon.folder.stat(), name) for name in ("st_uid", "st_gid")))
    (folder / "train it.py").write_text(TELL)
    env = {"GREETING": "hello,\n'world' \"$HOME\"\\", "API_TOKEN": "s3cr3t,\ntoken", "NOT_UTF8": "\udcff"}
    words = ["$(false)", "it's", 'a "b"', "--pbs", "x\ny", ""]
    with Server(cluster, tools=tools) as server:
        use(echelon, server)
        runs = folder / "runs of mine"
        result = echelon(
            "run",
            "-N",
            hosts,
            "--cold",
            "--set",
            "PASSWORD=hunter2",
            "train it.py",
            *words,
            cwd=folder,
            env={**env, "ECHELON_RUNS": str(runs)},
        )
        assert result.returncode == 0, result.stderr
        told = [json.loads(line.partition("{")[1] + line.partition("{")[2]) for line in result.stdout.splitlines()]
        assert len(told) == hosts
        for one in told:
            assert {name: one[name] for name in env} == env
            assert (one["argv"], one["cwd"], one["path"]) == (words, str(folder), echelon.env["PATH"])
            assert one["ECHELON_SEAL"] is None
        shown = json.dumps([job.fields() for job in server.jobs.values()])
    written = b"".join(path.read_bytes() for path in runs.rglob("*") if path.is_file() and path.name != "rank-0.out")
    assert "s3cr3t" not in shown
    assert "hunter2" not in shown
    assert b"hunter2" not in written
    nothing_runs(cluster)


def test_secrets_are_not_in_command_lines_or_files(echelon, pbs, cluster):
    run = echelon.submit(
        "-N",
        "2",
        "--cold",
        STEPS,
        "--steps",
        "100000",
        env={"MY_TOKEN": "s3cr3t"},
    )
    run.pid_of(1)
    commands = [process.command for name in ("ctl", "n1", "n2") for process in cluster.processes(name)]
    assert any("pbs_tmrsh" in command for command in commands)
    assert not [command for command in commands if "s3cr3t" in command]
    assert not [path for path in run.path.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    assert run.path.joinpath("environment.sealed").stat().st_mode & 0o777 == 0o600
    assert echelon("cancel", run.id).returncode == 0
    run.wait()


# Cancelling


@pytest.mark.parametrize("kill_delay", [10, 0])
def test_a_cancelled_run_leaves_nothing_on_any_host(cluster, echelon, kill_delay):
    """Also if TERM ends the login shell, and PBS then ends all other processes before echelon can write."""
    with Server(cluster, kill_delay=kill_delay) as server:
        use(echelon, server)
        run = echelon.submit("-N", "2", "-g", "2", "--cold", STEPS, "--steps", "100000")
        run.pid_of(3)
        assert echelon("cancel", run.id).returncode == 0
        wait_for(lambda: not server.unfinished(), "the job to end")
        wait_for(lambda: run.status()["state"] == "CANCELLED", "the run to be cancelled")
        nothing_runs(cluster)
    (run.path / "token").unlink(missing_ok=True)  # whoever was killed could not


# Faults


def test_the_verdict_names_the_rank_that_failed(echelon, pbs, cluster):
    result = echelon("run", "-N", "2", "-g", "2", "--cold", STEPS, "--do", "raise", "--who", "3")
    assert result.returncode == 1
    assert "rank 3" in result.stderr
    assert "n2" in result.stderr
    assert "ValueError: rank 3 is unhappy" in result.stderr
    nothing_runs(cluster)
    wait_for(lambda: not pbs.unfinished(), "the job to end")
    assert pbs.jobs["0.ctl"].exit_status == 1


def test_killed_rank_uses_one_restart(echelon, pbs, cluster):
    run = echelon.submit("-N", "2", "-g", "2", "--restarts", "1", "--cold", STEPS, *ONCE_MORE)
    wait_for(lambda: "step 3" in run.rank_log(2), "rank 2 to take steps")
    [victim] = [p for p in cluster.processes("n2") if ns_pid(p.pid) == run.pid_of(2)]
    os.kill(victim.pid, signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["generation"] for event in run.events("generation")] == [0, 1]
    nothing_runs(cluster)


def ns_pid(pid):
    """Its number on its own node."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid")))


def test_spare_replaces_a_powerless_host_unnoticed_by_pbs(echelon, pbs, cluster):
    run = echelon.submit(
        "-N",
        "2",
        "--spare-nodes",
        "1",
        "--heartbeat",
        "3s",
        "--cold",
        STEPS,
        *ONCE_MORE,
    )
    wait_for(lambda: "step 3" in run.rank_log(1), "rank 1 to take steps")
    cluster.power_off("n2")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"], ["n1", "n3"]]
    assert "tolerate_node_failures=all" in (run.path / "job.sh").read_text()


def test_run_without_a_spare_continues_in_a_successor_job(echelon, pbs, cluster):
    run = echelon.submit(
        "-N",
        "2",
        "--requeues",
        "1",
        "--heartbeat",
        "3s",
        "--cold",
        STEPS,
        "--steps",
        "150",
        "--seconds",
        "0.02",
    )
    wait_for(lambda: "step 3" in run.rank_log(1), "rank 1 to take steps")
    cluster.power_off("n2")
    assert run.wait()["outcome"] == "succeeded"
    assert [event["hosts"] for event in run.events("generation")] == [["n1", "n2"], ["n1", "n3"]]
    assert [event["attempt"] for event in run.events("requeued")] == [0]
    assert run.status()["native_id"] == "1.ctl"


# Time

STOPS_AT_THE_NOTICE = """
import os, sys, time
import echelon
attempt = int(os.environ["ECHELON_ATTEMPT"])
print("attempt", attempt, os.environ["GREETING"].encode(), flush=True)
while attempt == 0 and not echelon.notice_given():
    time.sleep(0.01)
sys.exit(75 if attempt == 0 else 0)
"""


def test_notice_by_the_clock_and_successor_continues(echelon, pbs, cluster):
    result = echelon(
        "run",
        "-N",
        "2",
        "--cold",
        "--time",
        "40s",
        "--notice",
        "35s",
        "--requeues",
        "1",
        echelon.script("train.py", STOPS_AT_THE_NOTICE),
        env={"GREETING": "a\nb"},
    )
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert run.rank_log(1, attempt=1) == "attempt 1 b'a\\nb'\n"
    assert run.events("notice")[0]["attempt"] == 0
    assert pbs.jobs["1.ctl"].request.attributes["depend"] == "afterany:0.ctl"
    wait_for(lambda: not pbs.unfinished(), "the last job to end")
    assert [job.exit_status for job in pbs.jobs.values()] == [75, 0]
    nothing_runs(cluster)


IGNORANT = """
import os, pathlib, time
first = pathlib.Path("seen-" + os.environ["RANK"])
if not first.exists():
    first.touch()
    time.sleep(600)
print("went on", flush=True)
"""


def test_plain_script_stops_before_pbs_kills_it_and_continues(cluster, echelon):
    """The time limit is that of the queue, which only qstat shows."""
    with Server(cluster, walltime="00:00:12") as server:
        use(echelon, server)
        script = echelon.script("train.py", IGNORANT)
        result = echelon("run", "-N", "2", "--cold", "--notice", "5s", "--requeues", "1", script)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("went on") == 2
        wait_for(lambda: not server.unfinished(), "the last job to end")
        assert [job.exit_status for job in server.jobs.values()] == [75, 0], "not -29: PBS did not have to end it"


# What PBS gives, and what it does not


def test_chunks_on_one_host_are_refused_with_the_remedy(echelon, pbs):
    result = echelon("run", "-N", "2", "--cold", "--pbs", "place=pack", STEPS)
    assert result.returncode == 3
    assert "PBS allocated 1 of the 2 hosts requested" in result.stderr
    assert "place=scatter" in result.stderr


def test_impossible_job_and_refusals_have_a_hint(echelon, pbs):
    run = echelon.submit("--cpus", "64", STEPS)
    reason = wait_for(lambda: run.status()["reason"], "a reason")
    assert reason == "it can never run: not enough ncpus"
    assert echelon("cancel", run.id).returncode == 0
    assert run.status()["state"] == "CANCELLED"
    assert not (run.path / "environment.sealed").exists()
    queue, resource = echelon("submit", "-p", "nowhere", STEPS), echelon("submit", "--pbs", "storage=gdata/ab12", STEPS)
    assert (queue.returncode, resource.returncode) == (4, 4)
    assert "qstat -Q" in queue.stderr
    assert "Unknown resource" in resource.stderr


def test_run_inside_a_job_uses_its_hosts(echelon, pbs, cluster):
    script = echelon.script("train.py", "import os, socket; print(socket.gethostname(), os.environ['WORLD_SIZE'])")
    variables = f"PATH={shlex.quote(echelon.env['PATH'])} PYTHONPATH={shlex.quote(os.environ.get('PYTHONPATH', ''))}"
    text = f"cd {echelon.folder} && {variables} {shlex.join(echelon.argv('run', '--cold', script))} >out 2>&1"
    qsub(pbs, echelon.folder, text, "-l", "select=2:ncpus=2", "-l", "place=scatter")
    wait_for(lambda: not pbs.unfinished(), "the job to end", 60)
    out = (echelon.folder / "out").read_text()
    assert pbs.jobs["0.ctl"].exit_status == 0, out
    assert out.count("n1 2") == out.count("n2 2") == 1
