"""The test cluster itself."""

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import UID, Cluster
from echelon.backends.slurm.query import parse_sacct, sacct_argv
from echelon.states import JobState
from folder import remove_abandoned
from node import SYSTEM_PATH, wait_for

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def folder(cluster):
    return cluster.make_folder()


def output_of(cluster, folder, job, seconds=30):
    """What a batch job wrote, once it is over."""
    wait_for(lambda: job not in cluster.jobs(), f"job {job} to end", seconds)
    return (folder / f"slurm-{job}.out").read_text()


def sbatch(cluster, folder, *options, wrap):
    result = cluster.run("ctl", ["sbatch", "--parsable", *options, f"--wrap={wrap}"], cwd=folder)
    return result.stdout.strip()


def test_nodes_have_names_and_addresses_of_their_own(cluster):
    show = "hostname; ip -brief -4 address show eth0"
    lines = set(cluster.run("ctl", ["srun", "-N2", "sh", "-c", show]).stdout.split())
    assert {"n1", "n2", "10.77.0.11/24", "10.77.0.12/24"} <= lines


def test_job_runs_as_the_user_and_has_its_gpus(cluster, folder):
    job = sbatch(cluster, folder, "--gpus-per-node=2", wrap="id -u; hostname; echo gpus=$CUDA_VISIBLE_DEVICES")
    assert output_of(cluster, folder, job).split() == [str(UID), "n1", "gpus=0,1"]


def test_node_local_files_are_invisible_to_other_nodes(cluster):
    here = "for d in /tmp /var/tmp /dev/shm; do touch $d/here; done; ls /tmp /var/tmp /dev/shm"
    assert cluster.run("n1", ["sh", "-c", here]).stdout.count("here") == 3
    assert "here" not in cluster.run("n2", ["ls", "/tmp", "/var/tmp", "/dev/shm"]).stdout
    assert cluster.debris() == {"n1": [Path("/tmp/here"), Path("/var/tmp/here"), Path("/dev/shm/here")]}
    cluster.run("n1", ["rm", "/tmp/here", "/var/tmp/here", "/dev/shm/here"])


def test_ranks_on_two_nodes_add_up_over_the_network(cluster, folder):
    argv = ["srun", "-N2", "--export=ALL,GLOO_SOCKET_IFNAME=eth0", sys.executable, SCRIPTS / "all_reduce.py"]
    lines = cluster.run("ctl", argv, cwd=folder).stdout.splitlines()
    assert sorted(lines) == ["n1 3.0", "n2 3.0"]


def test_queued_job_shows_its_reason(cluster, folder):
    first = sbatch(cluster, folder, "-N4", "--exclusive", wrap="sleep 600")
    wait_for(lambda: set(cluster.states().values()) == {"allocated"}, "the first job to run")
    second = sbatch(cluster, folder, "-N1", wrap="true")
    why = ["squeue", "-h", "-j", second, "-o", "%r"]
    wait_for(lambda: cluster.run("ctl", why).stdout.strip() == "Resources", "the reason to be Resources")
    cluster.run("ctl", ["scancel", first])
    output_of(cluster, folder, second)


def test_job_of_a_higher_partition_preempts_a_lower_one(cluster, folder):
    low = sbatch(cluster, folder, "-plow", "-N4", "--exclusive", wrap="sleep 600")
    wait_for(lambda: set(cluster.states().values()) == {"allocated"}, "the low job to run")
    high = sbatch(cluster, folder, "-phigh", "-N4", "--exclusive", wrap="hostname")
    assert output_of(cluster, folder, high).strip() == "n1"
    assert cluster.run("ctl", ["squeue", "-h", "-j", low, "-o", "%T"]).stdout.strip() == "PENDING"
    cluster.run("ctl", ["scancel", low])


def test_nodes_without_power_or_link_are_down_until_restored(cluster):
    asleep = cluster.popen("n2", ["sleep", "600"])
    cluster.power_off("n2")
    assert asleep.wait(timeout=10) != 0
    asleep.communicate()
    assert cluster.processes("n2") == []
    cluster.cut("n3")
    assert "NO-CARRIER" in cluster.run("n3", ["ip", "link", "show", "eth0"]).stdout
    cluster.wait_state("n2", "down")
    cluster.wait_state("n3", "down")
    cluster.restore()
    cluster.wait_idle()
    assert sorted(cluster.run("ctl", ["srun", "-w", "n2,n3", "hostname"]).stdout.split()) == ["n2", "n3"]


def test_restarted_controller_keeps_its_jobs(cluster, folder):
    job = sbatch(cluster, folder, wrap="sleep 600")
    wait_for(lambda: "n1" in cluster.leftovers(), "the job to run")
    cluster.stop_controller()
    assert "Unable to contact slurm controller" in cluster.run("ctl", ["squeue"], check=False).stderr
    cluster.start_controller()
    assert cluster.jobs() == [job]
    cluster.run("ctl", ["scancel", job])


def test_signals_reach_the_command_itself(cluster):
    process = cluster.popen("ctl", ["sleep", "600"])
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM
    assert cluster.leftovers() == {}


def test_processes_of_a_node_are_listed(cluster):
    with cluster.popen("n4", ["sleep", "600"], env={"TEST_MARK": "abc"}) as process:
        wait_for(
            lambda: [(p.command, p.mark) for p in cluster.leftovers().get("n4", [])] == [("sleep 600", "abc")], "sleep"
        )
        process.kill()


def test_stopped_cluster_leaves_no_processes(cluster):
    with Cluster(nodes=1, gpus=1) as other:
        asleep = other.popen("n1", ["sleep", "600"])
        pids = [p.pid for name in other.nodes for p in other.processes(name)]
        folder = other.shared
    asleep.communicate(timeout=10)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert not folder.exists()


def test_cluster_ends_with_its_killed_creator():
    program = f"""
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]}
from cluster import Cluster
cluster = Cluster(nodes=1).up()
print(cluster.shared, *(p.pid for name in cluster.nodes for p in cluster.processes(name)), flush=True)
sys.stdin.read()
"""
    maker = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with maker:
        shared, *pids = maker.stdout.readline().split()
        maker.kill()
    assert pids
    wait_for(lambda: not any(is_alive(pid) for pid in pids), f"{pids} to end")
    remove_abandoned()
    assert not Path(shared).exists()


def is_alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_ssh_hosts_have_separate_file_systems(cluster):
    ssh = ["ssh", "-o", "BatchMode=yes"]
    cluster.run("ctl", [*ssh, "h1", "touch ~/mine /tmp/mine"])
    assert cluster.run("ctl", [*ssh, "h1", "hostname; ls ~"]).stdout.split() == ["h1", "mine"]
    assert cluster.run("ctl", [*ssh, "h2", "hostname; ls ~ /tmp"]).stdout.split()[:1] == ["h2"]
    assert (cluster.home_of("h1") / "mine").exists()
    assert not (cluster.home / "mine").exists()
    assert not (cluster.home_of("h2") / "mine").exists()
    python = cluster.run(
        "ctl", [*ssh, "h1", f"rm ~/mine /tmp/mine; {shlex.quote(sys.executable)} -c 'import click; print(1 + 1)'"]
    )
    assert python.stdout == "2\n"


@pytest.mark.skipif(not shutil.which("slurmdbd", path=SYSTEM_PATH), reason="slurmdbd is not installed")
def test_accounting_lists_finished_jobs():
    """Asked and read as `echelon status` does it for jobs that have left the queue."""
    with Cluster(nodes=1, accounting=True) as other:
        other.run("ctl", ["sbatch", "--wait", "--wrap", "exit 3"], check=False)
        other.run("ctl", ["sbatch", "--wait", "--wrap", "kill -9 $$"], check=False)

        def books():
            told = parse_sacct(other.run("ctl", sacct_argv(["1001", "1002"], None)).stdout)
            return {number: (status.state, status.exit_code) for number, status in told.items() if status.state.ended}

        wait_for(lambda: len(books()) == 2, "sacct to know both jobs")
        assert books() == {"1001": (JobState.FAILED, 3), "1002": (JobState.FAILED, 137)}


def test_echelon_runs_on_the_login_node(echelon):
    script = echelon.script("hello.py", "import os; print('hello from rank', os.environ['RANK'], os.getuid())")
    result = echelon("run", "--cpu", script)
    assert result.returncode == 0, result.stderr
    assert f"hello from rank 0 {UID}" in result.stdout
    assert echelon.only_run().path.stat().st_uid == UID
