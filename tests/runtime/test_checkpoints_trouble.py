"""A full disk, kills in the middle of saves, a folder that is not shared: what was saved stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from crowd import free_port

from echelon.runtime.checkpoint.verify import committed
from running import DEADLINE_SECONDS, SCRIPTS, wait_for

pytestmark = pytest.mark.torch
LEARN = SCRIPTS / "learn.py"


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.root
def test_a_full_disk_costs_one_save_and_nothing_else(echelon, small_disk):
    args = ("--until", "100000", "--seconds", "0.02", "--every", "5", "--folder", str(small_disk / "saved"))
    run = echelon.submit("-g", "2", "--requeues", "1", LEARN, *args)
    saved = small_disk / "saved"
    wait_for(lambda: len(committed(saved)) == 3, "three checkpoints")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
    wait_for(lambda: "was not saved" in run.rank_log(0), "the failure to be told")
    before = committed(saved)
    step = run.rank_log(0).count("was not saved")
    wait_for(lambda: run.rank_log(0).count("was not saved") > step + 1, "training to go on")
    assert "No space left on device" in run.rank_log(0)
    assert committed(saved) == before, "old checkpoints stay"
    filler.unlink()
    wait_for(lambda: committed(saved)[-1] > before[-1], "the next checkpoint")
    os.kill(run.supervisor(), signal.SIGUSR1)
    wait_for(lambda: run.events("requeued"), "the stop")
    assert echelon("cancel", run.id).returncode == 0
    assert run.events("fault") == []
    left = [path.name for path in saved.iterdir() if path.name.startswith(".tmp")]
    assert len(left) <= 1, "at most that of the save that the cancel cut off"
    listed = json.loads(echelon("checkpoints", "--verify", "--json", str(saved)).stdout)
    assert all(one["verified"] for one in listed)


def test_hundreds_of_kills_in_the_middle_of_saves_lose_nothing_that_was_acknowledged():
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "kill_saves.py", folder / "saved", "200", "1"],
            capture_output=True, text=True, timeout=140, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["inside_a_save"] > 20, "some were killed in the middle of one"


UNSHARED = """
from datetime import timedelta
import torch, echelon
echelon.join()
echelon.Checkpoint("saved", model=torch.nn.Linear(2, 2), timeout=timedelta(seconds=10))
"""


@pytest.mark.root
def test_a_folder_that_hosts_do_not_share_is_refused_at_the_beginning(echelon):
    script = echelon.script("unshared.py", UNSHARED)
    (echelon.folder / "saved").mkdir()
    env = {**echelon.env, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    apart = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs saved && exec "$@"', "sh"]
    ranks = [
        subprocess.Popen(
            [*before, sys.executable, script], cwd=echelon.folder, text=True, stderr=subprocess.PIPE,
            env={**env, "RANK": str(rank)},
        )
        for rank, before in enumerate(([], apart))
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=DEADLINE_SECONDS)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all("the ranks do not share" in one and "is not seen by rank 1 on " in one for one in said), said
    assert [path.name for path in (echelon.folder / "saved").iterdir()] == [".lock"]
