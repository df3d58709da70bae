"""Agents on the other hosts of a PBS job: what starts them there, and what they say when they cannot."""

import os
import subprocess

import pytest

from folder import UID
from node import wait_for
from pbs.server import Server
from pbs.using import nothing_runs, use
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"


@pytest.mark.parametrize("folder", ["runs", "runs of mine"])
def test_an_agent_that_cannot_start_says_why_with_the_rest_of_the_job(echelon, pbs, cluster, folder):
    """Also where PBS could not be told of a file for what tasks print."""
    setup = 'echo "setting up $(hostname)"; [ "$(hostname)" = n1 ] || ulimit -n 6'
    env = {"ECHELON_RUNS": str(echelon.folder / folder)}
    result = echelon("run", "-N", "2", "--cold", "--setup", setup, STEPS, env=env)
    assert result.returncode == 1, result.stderr
    assert "n2 was lost: its agent died" in result.stderr
    [run] = (echelon.folder / folder).iterdir()
    said = (run / "job.out").read_text()
    assert "setting up n1" in said
    assert "setting up n2" in said
    assert "Too many open files" in said
    nothing_runs(cluster)
    cluster.remove_debris()  # it could not even open the folder that it leaves behind


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


def test_where_pbs_starts_no_tasks_ssh_does_with_the_same_environment_and_nothing_left(cluster, echelon, sshd_on_n2):
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
