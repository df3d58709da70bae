"""Agents on the other hosts of a PBS job: how they are started, and the errors if that fails."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from folder import UID
from node import wait_for
from pbs.server import Server
from pbs.using import nothing_runs, use
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"


@pytest.mark.parametrize("folder", ["runs", "runs of mine"])
def test_agent_that_cannot_start_reports_the_reason(echelon, pbs, cluster, folder):
    """Also if PBS has no file for the output of tasks."""
    setup = 'echo "setting up $(hostname)"; [ "$(hostname)" = n1 ] || ulimit -n 6'
    env = {"ECHELON_RUNS": str(echelon.folder / folder)}
    result = echelon("run", "-N", "2", "--cold", "--setup", setup, STEPS, env=env)
    assert result.returncode == 1, result.stderr
    assert "lost n2: its agent died" in result.stderr
    [run] = (echelon.folder / folder).iterdir()
    said = (run / "job.out").read_text()
    assert "setting up n1" in said
    assert "setting up n2" in said
    assert "Too many open files" in said
    nothing_runs(cluster)
    cluster.remove_debris()  # it could not even open the folder that it leaves behind


SHOW = """
import json, os
names = ("RANK", "PBS_NODENUM", "PBS_TASKNUM")
hosts = open(os.environ["PBS_NODEFILE"]).read().splitlines()
print(json.dumps([os.environ.get(name) for name in names] + [hosts]), flush=True)
"""


def test_variables_of_pbs_agree_with_the_rank(echelon, pbs):
    """PBS itself has one task per host, and a node file on the first host only."""
    size = ("-N", "2", "--procs-per-node", "2")
    result = echelon("run", *size, "--cold", echelon.script("show.py", SHOW))
    assert result.returncode == 0, result.stderr
    seen = sorted(json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines())
    hosts = ["n1", "n1", "n2", "n2"]
    assert seen == [[str(rank), str(rank // 2), str(rank + 1), hosts] for rank in range(4)]


# By ssh, where PBS has neither pbs_tmrsh nor pbsdsh


@pytest.fixture
def sshd_on_n2(cluster):
    """n2 can be logged into, as on sites that let a user into the hosts of a job."""
    key, host_key = cluster.home / ".ssh" / "id_ed25519.pub", "/run/ssh_host_key"
    cluster.run("n2", ["mkdir", "-p", "/run/sshd"], user="root")
    cluster.run("n2", ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], user="root")
    known, allowed = cluster.home / ".ssh" / "known_hosts", cluster.home / ".ssh" / "authorized_keys"
    before = known.read_text()
    known.write_text(f"{before}n2 {cluster.run('n2', ['cat', host_key + '.pub'], user='root').stdout}")
    allowed.write_text(key.read_text())
    os.chown(allowed, UID, UID)
    options = {"user": "root", "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with cluster.popen("n2", ["/usr/sbin/sshd", "-D"], **options) as sshd:
        wait_for(lambda: cluster.run("n1", ["ssh", "n2", "true"], check=False).returncode == 0, "sshd on n2")
        yield
        sshd.terminate()
    known.write_text(before)
    allowed.unlink()
    cluster.run("n2", ["rm", host_key, f"{host_key}.pub"], user="root")


def of_ours(cluster):
    everything = [process.command for left in cluster.leftovers().values() for process in left]
    return [command for command in everything if "echelon" in command or "steps.py" in command]


def test_ssh_replaces_pbs_tasks_with_the_same_environment(cluster, echelon, sshd_on_n2):
    tell = echelon.script("tell.py", "import os, socket; print(socket.gethostname(), repr(os.environ['GREETING']))")
    with Server(cluster, tools=("qsub", "qstat", "qdel")) as server:
        use(echelon, server)
        result = echelon("run", "-N", "2", "--cold", tell, env={"GREETING": "a\n'b' $HOME"})
        assert result.returncode == 0, result.stderr
        greeting = repr("a\n'b' $HOME")
        assert sorted(result.stdout.splitlines()) == [f"[0] n1 {greeting}", f"[1] n2 {greeting}"]
        run = echelon.submit("-N", "2", "--cold", STEPS, "--steps", "100000")
        run.pid_of(1)
        assert any(process.command.startswith("/usr/bin/ssh -n ") for process in cluster.processes("n1"))
        assert echelon("cancel", run.id).returncode == 0
        wait_for(lambda: not server.unfinished(), "the job to end")
        wait_for(lambda: not of_ours(cluster), "everything to be gone")


# An agent that does not answer


def agents_on(cluster, host):
    return [process for process in cluster.processes(host) if " agent " in process.command]


def test_a_stopped_agent_is_killed_and_the_run_continues(echelon, pbs, cluster):
    """TERM to pbs_tmrsh would end only pbs_tmrsh, and the ranks of the lost host would continue to train."""
    policy = ("--spare-nodes", "1", "--heartbeat", "3s", "--cold")
    run = echelon.submit("-N", "2", *policy, STEPS, "--steps", "100000")
    wait_for(lambda: "step 3\n" in run.rank_log(1), "rank 1 to take steps")
    for process in agents_on(cluster, "n2"):
        os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: len(run.events("generation")) == 2, "the generation on n1 and n3")
    wait_for(lambda: "n2" not in cluster.leftovers(), "n2 to be clean")
    assert run.status()["state"] == "RUNNING"
    assert echelon("cancel", run.id).returncode == 0
    assert not list(run.path.glob(".task-*"))


@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
def test_mpirun_reaches_the_other_hosts_through_tasks_of_pbs(echelon, pbs, cluster):
    """Ranks there have the variables of the job too, although mpirun and PBS do not pass them on."""
    script = echelon.folder / "init.py"
    script.write_text((SCRIPTS / "env_init.py").read_text() + 'print("word", os.environ.get("WORD"), flush=True)\n')
    env = {"WORD": "carried"}
    result = echelon("run", "-N", "2", "-g", "2", "--launcher", "mpirun", script, env=env, timeout=140)
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(line for line in result.stdout.splitlines() if "word" in line) == [
        f"[{rank}] word carried" for rank in range(4)
    ]
    facts = [json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines() if "] {" in line]
    assert {fact["rank"]: fact["host"] for fact in facts} == {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
    assert all(fact["sum"] == 4 for fact in facts)
    nothing_runs(cluster)


@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
def test_mpirun_without_a_way_through_pbs_is_refused(cluster, echelon):
    """Debian's Open MPI does not know PBS: it would try ssh."""
    with Server(cluster, tools=("qsub", "qstat", "qdel", "pbsdsh")) as server:
        use(echelon, server)
        result = echelon("run", "-N", "2", "--launcher", "mpirun", SCRIPTS / "env_init.py", timeout=140)
        assert result.returncode == 3, result.stderr
        assert "mpirun cannot reach the other hosts through PBS (on n1): pbs_tmrsh is not on PATH" in result.stderr
        wait_for(lambda: not server.unfinished(), "the job to end")
        nothing_runs(cluster)
