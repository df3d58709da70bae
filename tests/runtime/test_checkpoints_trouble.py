"""A full disk, kills during saves, a folder that is not shared: saved checkpoints stay intact."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from crowd import free_port

from echelon.train.checkpoint.verify import committed_checkpoints
from running import DEADLINE_SECONDS, SCRIPTS, patience, wait_for

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
def test_full_disk_fails_only_one_save(echelon, small_disk):
    args = ("--until", "100000", "--seconds", "0.02", "--every", "5", "--folder", str(small_disk / "saved"))
    run = echelon.submit("-g", "2", "--requeues", "1", LEARN, *args)
    saved = small_disk / "saved"
    wait_for(lambda: len(committed_checkpoints(saved)) == 3, "three checkpoints")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
    wait_for(lambda: "was not saved" in run.rank_log(0), "the failure to be told")
    before = committed_checkpoints(saved)
    step = run.rank_log(0).count("was not saved")
    wait_for(lambda: run.rank_log(0).count("was not saved") > step + 1, "training to go on")
    assert "No space left on device" in run.rank_log(0)
    assert committed_checkpoints(saved) == before, "old checkpoints stay"
    filler.unlink()
    wait_for(lambda: committed_checkpoints(saved)[-1] > before[-1], "the next checkpoint")
    os.kill(run.supervisor(), signal.SIGUSR1)
    wait_for(lambda: run.events("requeued"), "the stop")
    assert echelon("cancel", run.id).returncode == 0
    assert run.events("fault") == []
    left = [path.name for path in saved.iterdir() if path.name.startswith(".tmp")]
    assert len(left) <= 1, "at most that of the save that the cancel cut off"
    listed = json.loads(echelon("checkpoints", "--verify", "--json", str(saved)).stdout)
    assert all(one["verified"] for one in listed)


def test_kills_during_saves_lose_no_acknowledged_checkpoint():
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "kill_saves.py", folder / "saved", "200", "1"],
            capture_output=True,
            text=True,
            timeout=patience(140),
            check=False,
        )
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
def test_unshared_checkpoint_folder_is_refused_at_the_start(echelon):
    script = echelon.script("unshared.py", UNSHARED)
    (echelon.folder / "saved").mkdir()
    env = {**echelon.env, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    apart = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs saved && exec "$@"', "sh"]
    ranks = [
        subprocess.Popen(
            [*before, sys.executable, script],
            cwd=echelon.folder,
            text=True,
            stderr=subprocess.PIPE,
            env={**env, "RANK": str(rank)},
        )
        for rank, before in enumerate(([], apart))
    ]
    try:
        said = [rank.communicate(timeout=DEADLINE_SECONDS)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all("the ranks do not share" in one and "is not visible to rank 1 on " in one for one in said), said
    assert [path.name for path in (echelon.folder / "saved").iterdir()] == [".lock"]


LAST_SAVE_FAILS = """
import torch, echelon
from echelon.train.checkpoint import write

def full(fd):
    raise OSError(28, "No space left on device")

world = echelon.join()
with echelon.Checkpoint(every=5, asynchronous=False, model=torch.nn.Linear(2, 2)) as checkpoint:
    for step in checkpoint.steps(range(8)):
        if checkpoint.step == 5 and world.rank == 1:
            write.os.fsync = full
"""


def test_run_with_unsaved_last_steps_fails_on_all_ranks(echelon):
    script = echelon.script("last.py", LAST_SAVE_FAILS)
    result = echelon("run", "-g", "2", script)
    sentence = "the last 3 steps are not saved: No space left on device"
    assert result.returncode == 1, result.stderr
    assert sentence in result.stderr
    assert all(re.search(rf"\[{rank}\] \[rank{rank}\]: .*{sentence}", result.stdout) for rank in (0, 1))
    (listed,) = json.loads(echelon("ls", "--json").stdout)
    assert (listed["state"], listed["step"], listed["saved"]) == ("FAILED", 8, 5)
    assert "8 (saved 5)" in echelon("ls").stdout
    assert "8 (saved 5)" in echelon("status", listed["run_id"]).stdout
    exported = echelon("export", listed["run_id"], "model.pt")
    assert "training reached step 8; the newest saved step is 5" in exported.stderr


NEVER_CLOSED = """
import sys, torch, echelon
from echelon.train.checkpoint import write

def full(fd):
    raise OSError(28, "No space left on device")

checkpoint = echelon.Checkpoint(every=None, asynchronous=False, model=torch.nn.Linear(2, 2))
write.os.fsync = full
notes = open("notes", "w")
notes.write("kept")
for step in checkpoint.steps(range(3)):
    checkpoint.save()
if "raise" in sys.argv:
    raise KeyError("of the script")
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        ((), 1, "3 steps are not saved: No space left on device"),
        (("0",), 1, "3 steps are not saved: No space left on device"),
        (("raise",), 1, "KeyError: 'of the script'"),
        (("7",), 7, "exited with code 7"),
    ],
)
def test_script_that_never_closes_fails_after_a_failed_save(echelon, args, code, sentence):
    result = echelon("run", echelon.script("never_closed.py", NEVER_CLOSED), *args)
    assert result.returncode == code, result.stderr
    assert sentence in echelon("why").stdout
    assert (echelon.folder / "notes").read_text() == "kept"
