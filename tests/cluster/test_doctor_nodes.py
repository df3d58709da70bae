"""`echelon doctor` on a real Slurm cluster and over ssh: each fault is made for real, and its node and cause are named."""

import json
import sys

from faults import Faults, only_on, user_folder
from ssh_hosts import on

THREE = ("-N", "3", "--nodelist", "n1,n2,n3")


def checked(echelon, *flags, env=None):
    env = {"XDG_STATE_HOME": str(echelon.folder / "state"), **(env or {})}  # results of other tests are kept elsewhere
    result = echelon("doctor", "--json", *flags, env=env, timeout=120)
    assert result.returncode in (0, 1), result.stderr
    report = json.loads(result.stdout)
    assert result.returncode == (0 if report["ok"] else 1)
    print(
        f"{report['seconds']} s", *((one["severity"], one["node"], one["what"]) for one in report["findings"]), sep="\n"
    )
    return report


def on_three(echelon, *flags, env=None):
    return checked(echelon, *THREE, *flags, env=env)


def found(report, node):
    """What was found about a node or a connection."""
    return [one["what"] for one in report["findings"] if one["node"] == node]


def has(report, node, words):
    return any(words in what for what in found(report, node))


def test_healthy_cluster_has_no_finding(cluster, echelon):
    report = on_three(echelon)
    assert report["findings"] == []
    assert sorted(report["nodes"]) == ["n1", "n2", "n3"]
    assert len([check for check in report["nodes"]["n1"] if check.startswith("pairs/")]) == 2
    assert set(report["nodes"]["n3"]["all_reduce"]["facts"]["sizes"]) == {str(1 << 20), str(64 << 20)}
    assert list((echelon.folder / "runs").iterdir()) == []


def test_change_since_the_last_good_result_is_a_note(cluster, echelon):
    assert checked(echelon, "-N", "2", "--nodelist", "n1,n2")["ok"]
    with Faults(cluster) as faults:
        faults.mtu("n2", 1400)
        report = checked(echelon, "-N", "2", "--nodelist", "n1,n2")
    assert "mtu is 1400, was 1500" in found(report, "n2")


def test_faults_of_mounts_are_named(cluster, echelon):
    full, fixed, crowded, stuck = (user_folder(echelon.folder, name) for name in ("full", "fixed", "crowded", "stuck"))
    with Faults(cluster) as faults:
        faults.tmpfs("n2", full, "size=64k")
        faults.on("n2", "sh", "-c", f"head -c 1M /dev/zero >{full}/much", check=False)
        faults.mount("n2", fixed, "-t", "tmpfs", "-o", "ro", "tmpfs")
        faults.tmpfs("n3", crowded, "nr_inodes=40")
        faults.remount("n3", "/tmp", "noexec", "exec")
        faults.remount("n2", "/dev/shm", "size=1m", "size=50%")
        faults.stuck_mount("n1", stuck)
        report = on_three(echelon, *(flag for one in (full, fixed, crowded) for flag in ("--folder", one)))
    assert has(report, "n2", f"{full} is full")
    assert has(report, "n2", f"cannot write to {fixed}")
    assert has(report, "n2", "/dev/shm has 1 MiB free")
    assert has(report, "n3", "inodes left")
    assert has(report, "n3", "/tmp is mounted noexec")
    assert has(report, "n3", f"{crowded} is not shared")
    assert has(report, "n1", f"{stuck} hangs")
    assert report["exclude"] == ["n1", "n2", "n3"]


def test_faults_of_limits_and_variables_are_named(cluster, echelon):
    fake = user_folder(echelon.folder, "bin")
    (fake / "nvidia-smi").write_text("#!/bin/sh\necho '1, 4096, /usr/bin/python3'\n")
    (fake / "nvidia-smi").chmod(0o755)
    torch = user_folder(echelon.folder, "other") / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(
        "__version__ = '2.12.1'\nclass version: cuda = hip = None\nclass cuda: device_count = staticmethod(lambda: 0)\n"
    )
    with Faults(cluster) as faults:
        library = faults.clock_library(echelon.folder)
        report = on_three(
            echelon,
            *("--procs-per-node", "2", "-g", "1", "--cpus", "2"),
            *only_on("n1", "ulimit -n 256"),
            *only_on("n1", "taskset -cp 0 $$ >/dev/null"),
            *only_on("n2", f"export PYTHONPATH={torch.parent}"),
            *only_on("n2", f"export PATH={fake}:$PATH"),
            *only_on("n3", "export MASTER_ADDR=10.1.1.1 NCCL_SOCKET_IFNAME=ib9"),
            *only_on("n3", f"export LD_PRELOAD={library}"),
        )
    assert has(report, "n1", "only 256 open files")
    assert has(report, "n1", "1 core for 2 ranks")
    assert has(report, "n2", "torch 2.12.1")
    assert has(report, "n2", "another process uses a GPU")
    assert has(report, "n3", "MASTER_ADDR=10.1.1.1 set")
    assert has(report, "n3", "NCCL_SOCKET_IFNAME=ib9 names no interface")
    assert has(report, "n3", "its clock is 300.0 s ahead")


def test_faults_of_the_network_are_named(cluster, echelon):
    with Faults(cluster) as faults:
        faults.hosts("n1", echelon.folder, "n2", "10.9.9.9")
        faults.drop("n3", "n2")
        faults.mtu("n3", 1400)
        report = on_three(echelon)
    assert found(report, "n1") == ["n2 resolves to 10.9.9.9"]
    assert found(report, "n2 -> n3") == ["cannot connect to n3"]
    assert found(report, "n3") == ["MTU 1400"]


def test_slow_link_is_named(cluster, echelon):
    with Faults(cluster) as faults:
        faults.slow_link("n2")
        report = on_three(echelon)
    assert has(report, "n2", "slow network")
    assert report["exclude"] == ["n2"]
    assert "all_reduce" in report["nodes"]["n1"]


def test_node_without_network_is_named(cluster, echelon):
    """It hears of its job and starts its agent, which cannot reach the supervisor on the first node."""
    with Faults(cluster) as faults:
        faults.drop("n1", "n3")
        report = on_three(echelon)
    assert found(report, "n3") == ["did not start"]
    assert report["exclude"] == ["n3"]
    assert "all_reduce" in report["nodes"]["n2"]


def test_request_that_slurm_would_refuse_is_named(cluster, echelon):
    report = checked(echelon, "-N", "2", "-p", "none")
    assert found(report, "ctl") == ["Slurm would refuse the job"]
    assert "-p NAME" in report["findings"][0]["fix"]
    assert report["nodes"] == {}
    report = checked(echelon, "-p", "small", "-N", "3")
    assert found(report, "ctl") == ["Slurm would refuse the job"]


def test_silent_scheduler_is_named(cluster, echelon):
    cluster.stop_controller()
    report = checked(echelon)
    cluster.start_controller()
    assert has(report, "ctl", "Slurm does not answer")


def test_ssh_hosts_are_checked(cluster, echelon):
    healthy = checked(echelon, *on("h1,h2"))
    assert healthy["findings"] == []
    assert sorted(healthy["nodes"]) == ["h1", "h2"]
    with Faults(cluster) as faults:
        faults.drop("h1", "h2")
        report = checked(echelon, *on("h1,h2"))
    assert has(report, "h2", "cannot reach the first node")
    assert sys.executable in healthy["nodes"]["h1"]["software"]["facts"]["executable"]


# The gate before a run

HELLO = "import os\nprint('hello from', os.uname().nodename, os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"


def test_preflight_replaces_a_failing_node_by_a_spare(cluster, echelon):
    script = echelon.script("hello.py", HELLO)
    flags = ("-N", "2", "--spare-nodes", "1", "--nodelist", "n1,n2,n3", "--cold", "--preflight")
    result = echelon("run", *flags, *only_on("n2", "ulimit -n 256"), script)
    assert result.returncode == 0, result.stderr
    assert "hello from n1 0 of 2" in result.stdout
    assert "hello from n3 1 of 2" in result.stdout
    assert "preflight: n2: only 256 open files" in result.stderr
    assert "preflight: excluded n2; replaced by n3" in result.stderr


def test_preflight_names_the_node_if_no_spare_is_left(cluster, echelon):
    script = echelon.script("hello.py", HELLO)
    with Faults(cluster) as faults:
        faults.drop("n3", "n2")
        result = echelon("run", *THREE, "--cold", "--preflight", script)
    assert result.returncode == 1
    assert "hello" not in result.stdout
    assert "preflight: n2 -> n3: cannot connect to n3" in result.stderr
    assert "preflight: excluded n3; no spare node replaces it" in result.stderr
    assert "2 of 3 nodes are left" in result.stderr
    assert "preflight: n2 -> n3" in echelon("why").stdout


def test_preflight_works_over_ssh(cluster, echelon):
    script = echelon.script("hello.py", HELLO)
    result = echelon("run", *on("h1,h2", "--cold", "--preflight", "--snapshot"), script)
    assert result.returncode == 0, result.stderr
    assert "hello from h2 1 of 2" in result.stdout


def test_hosts_of_pbs_are_checked(cluster, echelon, pbs):
    report = checked(echelon, "-N", "2", "--cpus", "2")
    assert report["findings"] == []
    assert len(report["nodes"]) == 2
    report = checked(echelon, "-N", "2", "-p", "none")
    assert has(report, "ctl", "PBS has no queue none")
