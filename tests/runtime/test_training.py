"""Real torch.distributed: ordinary torchrun scripts, run, killed and recovered."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from running import wait_for

pytestmark = pytest.mark.torch

ALL_REDUCE = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and len(sys.argv) > 1:
    for step in range(10_000):
        dist.all_reduce(total)
        time.sleep(0.01)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("way", [(), ("--cold",)], ids=["warm", "cold"])
def test_unmodified_script_joins_on_two_nodes(echelon, way):
    script = echelon.script("train.py", ALL_REDUCE)
    result = echelon("run", "-N", "2", "-g", "2", *way, script)
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] sum 6.0 of 4" for rank in range(4)]
    assert "on CPU" in result.stderr


def test_killed_rank_is_restarted_and_all_ranks_join_again(echelon):
    script = echelon.script("train.py", ALL_REDUCE)
    run = echelon.submit("-N", "2", "-g", "2", "--restarts", "1", script, "loop")
    wait_for(lambda: all("sum" in run.rank_log(rank) for rank in range(4)), "the first all_reduce")
    os.kill(run.pid_of(3), signal.SIGKILL)
    assert run.wait()["outcome"] == "succeeded"
    (fault,) = run.events("fault")
    assert fault["fault"].startswith("rank 3 on node1 was killed by SIGKILL"), "not one of its echoes"
    assert all(run.rank_log(rank).count("sum 6.0 of 4") == 2 for rank in range(4))


def test_exception_is_the_verdict_and_not_its_consequences(echelon):
    script = echelon.script(
        "train.py",
        ALL_REDUCE.replace(
            "dist.destroy", "if dist.get_rank() == 2: raise ValueError('the cause')\ndist.barrier()\ndist.destroy"
        ),
    )
    result = echelon("run", "-N", "2", "-g", "2", script)
    assert "rank 2 on node1 raised ValueError: the cause" in result.stderr
    assert result.stderr.count("Traceback (most recent call last)") == 1


def test_a_frozen_rank_in_a_collective_is_a_hang(echelon):
    script = echelon.script("train.py", ALL_REDUCE)
    run = echelon.submit("-g", "2", "--restarts", "1", "--hang-timeout", "3s", script, "loop")
    wait_for(lambda: all("sum" in run.rank_log(rank) for rank in range(2)), "the first all_reduce")
    os.kill(run.pid_of(1), signal.SIGSTOP)
    assert run.wait()["outcome"] == "succeeded"
    (fault,) = run.events("fault")
    assert fault["fault"].startswith(
        "no progress for 3 s: rank 1 on node0 is stopped by a signal (SIGSTOP); rank 0 waits"
    )
    assert "all_reduce" in (run.path / "attempt-0" / "evidence" / "generation-0" / "rank-0.stacks").read_text()


ENVIRON = "import json, os\nprint(json.dumps(dict(os.environ)))\n"


def test_ranks_get_every_variable_that_torchrun_sets(echelon):
    script = echelon.script("environ.py", ENVIRON)
    torchrun = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", script],
        env={**echelon.env, "TMPDIR": str(echelon.folder)},
        cwd=echelon.folder,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    theirs = json.loads(torchrun.stdout)
    assert echelon("run", "-N", "2", "-g", "2", "--cold", script).returncode == 0
    everyone = [json.loads(echelon.only_run().rank_log(rank)) for rank in range(4)]
    missing = set(theirs) - set(echelon.env) - set(everyone[3])
    assert missing - {"OMP_NUM_THREADS", "TORCHELASTIC_SIGNALS_TO_HANDLE"} == set()
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_RANK")
    assert [everyone[3][name] for name in names] == ["3", "1", "1", "4", "2", "2", "3"]
    assert int(everyone[0]["OMP_NUM_THREADS"]) >= 1
    assert everyone[0]["MASTER_ADDR"] == everyone[3]["MASTER_ADDR"] == "127.0.0.1"


def test_the_rendezvous_store_listens_on_one_address_only(echelon):
    script = echelon.script("train.py", ALL_REDUCE)
    run = echelon.submit("-g", "2", script, "loop")
    wait_for(lambda: "sum" in run.rank_log(0), "the first all_reduce")
    port = run.events("generation")[0]["port"]
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    rows = [line.split()[1] for line in table.splitlines()]
    listening = [row for row in rows if row.endswith(f":{port:04X}")]
    assert "0100007F:%04X" % port in listening  # noqa: UP031
    assert not [row for row in listening if set(row.partition(":")[0]) == {"0"}], "listens on every interface"
    assert echelon("cancel", run.id).returncode == 0
