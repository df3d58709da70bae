"""echelon.join() under a real mpirun, which sets ranks but no rendezvous address."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from running import DEADLINE_SECONDS

pytestmark = pytest.mark.torch

STORY = """
import json
from datetime import timedelta
import torch
import torch.distributed as dist
import echelon

world = echelon.join(timeout=timedelta(seconds=60))
total = torch.tensor([2.0 ** world.rank])
dist.all_reduce(total)
print(json.dumps({
    "rank": world.rank, "size": world.size, "local": [world.local_rank, world.local_size], "node": world.node_rank,
    "backend": dist.get_backend(), "sum": total.item(),
}), flush=True)
world.barrier()
"""


@pytest.fixture
def mpirun(echelon):
    """Runs a script on so many ranks."""
    program = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if program is None:
        reason = "there is no mpirun: apt-get install openmpi-bin"
        (pytest.fail if os.environ.get("SKIP_NOTHING") else pytest.skip)(reason)
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    head = [program, *as_root, "--oversubscribe", "--mca", "oob_tcp_if_include", "lo"]

    def run(ranks, script):
        return subprocess.run(
            [*head, "-n", str(ranks), sys.executable, script],
            env=echelon.env,
            cwd=echelon.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    return run


def facts(text):
    """The records that ranks printed, sorted by rank."""
    told = [json.JSONDecoder().raw_decode(text, found.start())[0] for found in re.finditer(r'\{"rank": ', text)]
    return sorted(told, key=lambda one: one["rank"])


def test_all_ranks_join_with_their_ranks(echelon, mpirun):
    done = mpirun(3, echelon.script("train.py", STORY))
    assert done.returncode == 0, done.stderr
    assert facts(done.stdout) == [
        {"rank": rank, "size": 3, "local": [rank, 3], "node": 0, "backend": "gloo", "sum": 7.0} for rank in range(3)
    ]


ABSENT = """
import os, signal, time
from datetime import timedelta
from pathlib import Path
import torch.distributed
import echelon

rank = os.environ["OMPI_COMM_WORLD_RANK"]
if rank == {absent!r}:
    signal.pause()
Path(rank).touch()
while not all(Path(other).exists() for other in "012" if other != {absent!r}):
    time.sleep(0.01)
echelon.join(timeout=timedelta(seconds=3))
"""


def test_missing_rank_is_named(echelon, mpirun):
    done = mpirun(3, echelon.script("train.py", ABSENT.format(absent="2")))
    assert done.returncode == 1, done.stderr
    assert "error: 1 of 3 ranks did not join within 3 s: rank 2\n" in done.stderr


def test_missing_rank_0_is_named(echelon, mpirun):
    done = mpirun(3, echelon.script("train.py", ABSENT.format(absent="0")))
    assert done.returncode == 1, done.stderr
    assert re.search(r"error: rank 0 is missing: nothing answered at 127\.0\.0\.1:\d+ for 3 s\n", done.stderr)
