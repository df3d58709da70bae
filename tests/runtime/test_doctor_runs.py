"""`echelon doctor` and `--preflight` on rehearsed nodes: table, JSON, exit codes, and what is kept."""

import json
import os
import subprocess
import sys

import pytest

from running import wait_for

pytestmark = pytest.mark.torch


def test_healthy_nodes_have_no_finding_and_leave_nothing(echelon):
    result = echelon("doctor", "-N", "2", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [one for one in report["findings"] if one["severity"] == "error"] == []
    assert report["ok"]
    assert report["tiers"] == [1, 2, 3, 4]
    assert sorted(report["nodes"]) == ["node0", "node1"]
    for node, peer in (("node0", "node1"), ("node1", "node0")):
        assert report["nodes"][node][f"pairs/{peer}"]["facts"]["stage"] == "done"
        sizes = report["nodes"][node]["all_reduce"]["facts"]["sizes"]
        assert all(one["correct"] for one in sizes.values())
    assert list((echelon.folder / "runs").iterdir()) == []
    assert list((echelon.folder / "state" / "echelon" / "doctor").glob("local-*.json"))
    assert "checked connections: 2 of 2 nodes" in result.stderr


def test_fault_is_named_in_the_table(echelon):
    result = echelon("doctor", "-N", "2", "--setup", "ulimit -n 256", "--setup", "export MASTER_PORT=1")
    assert result.returncode == 1, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "error   node0  only 256 open files (ulimit -n)"
    assert "        fix   --setup 'ulimit -n $(ulimit -Hn)'" in lines
    assert any(line.startswith("warning node1  MASTER_PORT=1 set") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert list((echelon.folder / "state" / "echelon").glob("doctor/*.json")) == [], "only good results are kept"


def test_this_machine_is_checked_without_a_job(echelon):
    result = echelon("doctor", "--json", "--folder", str(echelon.folder / "none"))
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert report["tiers"] == [1]
    assert f"no folder {echelon.folder / 'none'}" in [one["what"] for one in report["findings"]]
    assert not (echelon.folder / "runs").exists()


def test_folder_that_another_run_holds_is_named(echelon):
    code = (
        "import time\nfrom pathlib import Path\nfrom echelon.train.checkpoint.folder import acquire_lock\n"
        "lock = acquire_lock(Path('checkpoints'), run='gpt-1')\nprint('held', flush=True)\ntime.sleep(100)"
    )
    (echelon.folder / "checkpoints").mkdir()
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, cwd=echelon.folder, env=echelon.env, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        result = echelon("doctor")
        holder.kill()
    assert result.returncode == 1
    assert "another run saves to" in result.stdout
    assert "run gpt-1" in result.stdout


def test_python_without_torch_is_named(echelon):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", echelon.folder / "bare"], check=True)
    result = echelon("doctor", "-N", "2", "--venv", "bare", "--json")
    assert result.returncode == 1, result.stderr
    findings = json.loads(result.stdout)["findings"]
    assert [one["node"] for one in findings if one["what"].startswith("no torch in")] == ["node0", "node1"]


def test_script_that_is_missing_is_wrong_usage(echelon):
    result = echelon("doctor", "-N", "2", "missing.py")
    assert result.returncode == 2
    assert "no script at missing.py" in result.stderr


def test_interrupted_doctor_cancels_its_job(echelon):
    process = echelon.start("doctor", "-N", "2")
    wait_for(lambda: list(echelon.folder.glob("runs/*/attempt-0/*.index")), "the nodes")
    os.kill(process.pid, 2)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "cancelling doctor-" in err


def test_preflight_lets_a_healthy_run_start(echelon):
    script = echelon.script("hello.py", "import os\nprint('rank', os.environ['RANK'])\n")
    result = echelon("run", "-N", "2", "--preflight", script)
    assert result.returncode == 0, result.stderr
    assert "[1] rank 1" in result.stdout
    assert "preflight" not in result.stderr


def test_preflight_starts_no_rank_on_failing_nodes(echelon):
    script = echelon.script("hello.py", "print('hello')\n")
    result = echelon("run", "-N", "2", "--preflight", "--cold", "--setup", "ulimit -n 256", script)
    assert result.returncode == 1
    assert "hello" not in result.stdout
    assert "preflight: node0: only 256 open files" in result.stderr
    assert echelon.only_run().wait()["lost_hosts"] == ["node0", "node1"]
