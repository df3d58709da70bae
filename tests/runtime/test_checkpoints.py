"""Real ranks that are killed, stopped and started again, in any number: nothing is lost and nothing is different."""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from echelon.runtime.checkpoint.verify import committed
from echelon.runtime.sampler import ElasticSampler
from running import DEADLINE_SECONDS, SCRIPTS, wait_for

pytestmark = pytest.mark.torch

LEARN = SCRIPTS / "learn.py"
LENGTH, BATCH = 203, 3  # of learn.py


def endings(text):
    """What each rank ended with."""
    return dict(re.findall(r"rank (\d+) ends at (\d+ with \w+)", text))


def order_of(folder):
    """The samples in the order in which all ranks together took them; a step that was taken again counts once."""
    steps: dict[int, dict[int, dict]] = {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            taken = json.loads(line)
            steps.setdefault(taken["step"], {})[int(path.name.removeprefix("rank-"))] = taken
    order: dict[int, list[int]] = {}
    for _, ranks in sorted(steps.items()):
        size = ranks[0]["size"]
        dealt = [ranks[rank]["ids"] for rank in range(size)]
        assert {ranks[rank]["size"] for rank in range(size)} == {size}, "all ranks were at the same start"
        order.setdefault(ranks[0]["epoch"], []).extend(ids for turn in zip(*dealt, strict=True) for ids in turn)
    return order


def assert_in_order(folder, epochs):
    """Every sample once an epoch, in the epoch's own order, whatever happened on the way."""
    order = order_of(folder)
    for epoch in range(epochs):
        sampler = ElasticSampler(LENGTH, rank=0, world_size=1, seed=11)
        sampler.set_epoch(epoch)
        whole = list(sampler)
        if epoch + 1 < epochs:
            assert order[epoch][:LENGTH] == whole
            assert order[epoch][LENGTH:] == whole[: len(order[epoch]) - LENGTH], "the last round is filled up"
        else:
            assert order[epoch] == whole[: len(order[epoch])]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What four ranks end with when nothing happens to them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(
        [sys.executable, "-m", "echelon", "run", "--on", "local", "-g", "4", LEARN, "--records", folder / "records"],
        env={**os.environ, "ECHELON_RUNS": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")},
        cwd=folder, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    ends = endings(done.stdout)
    assert len(ends) == 4
    return ends, order_of(folder / "records")


def newest(run):
    return max((name.step for name in committed(run.path / "checkpoints")), default=0)


def test_killed_and_stopped_and_requeued_it_ends_bit_for_bit_as_if_nothing_had_happened(echelon, undisturbed):
    run = echelon.submit(
        "-g", "4", "--restarts", "9", "--requeues", "9", LEARN, "--seconds", "0.1", "--every", "3"
    )  # fmt: skip
    draw = random.Random(3)
    attempt = generation = 0
    for what in ("kill", "kill", "notice", "kill", "notice"):
        before = newest(run)
        wait_for(lambda before=before: newest(run) > before + 3, "two more checkpoints")
        if what == "kill":
            pids = {e["rank"]: e["pid"] for e in run.events("rank_ready") if e["generation"] == generation
                    and e["attempt"] == attempt}  # fmt: skip
            os.kill(pids[draw.randrange(4)], signal.SIGKILL)
            generation += 1
        else:
            os.kill(run.supervisor(), signal.SIGUSR1)
            attempt, generation = attempt + 1, 0
        wait_for(lambda a=attempt, g=generation: started(run, a, g) or run.events("finished"), "the next start")
    assert run.wait()["outcome"] == "succeeded"
    last = max(event["attempt"] for event in run.events("rank_ready"))  # all may be done before they hear of a notice
    said = "".join(run.rank_log(rank, last) for rank in range(4))
    assert (endings(said), order_of(echelon.folder / "records")) == undisturbed
    assert [event["reason"] for event in run.events("requeued")] == ["the ranks stopped in time"] * 2
    assert all(event["fault"].endswith("was killed by SIGKILL") for event in run.events("fault"))
    assert {"step", "seconds", "bytes"} <= set(run.events("checkpoint")[0])
    listed = json.loads(echelon("checkpoints", "--verify", "--json", run.id).stdout)
    assert [one["verified"] for one in listed] == [True] * 3
    assert listed[-1]["step"] == 60


def started(run, attempt, generation):
    ready = [e for e in run.events("rank_ready") if (e["attempt"], e["generation"]) == (attempt, generation)]
    return len(ready) == 4


def test_four_ranks_then_two_then_three_take_every_sample_in_order(echelon):
    for ranks, until in ((4, 12), (2, 40), (3, 61)):
        result = echelon("run", "-g", str(ranks), LEARN, "--folder", "saved", "--until", str(until))
        assert result.returncode == 0, result.stderr + result.stdout
        assert len(set(re.findall(r"ends at (\d+)", result.stdout))) == 1
    assert_in_order(echelon.folder / "records", 3)
    shown = echelon("checkpoints", "saved")
    assert shown.stdout.splitlines()[-1].split()[0] == "61"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ranks_by_hand(echelon, size, *args):
    """Ranks that nobody supervises."""
    port = str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, LEARN, *args], cwd=echelon.folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**echelon.env, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(size)
    ]  # fmt: skip


def test_a_bare_signal_to_one_rank_stops_all_of_them_at_one_step(echelon):
    ranks = ranks_by_hand(echelon, 2, "--until", "100000", "--seconds", "0.002", "--every", "1000000")
    try:
        record = echelon.folder / "records" / "rank-1"
        wait_for(lambda: record.exists() and record.read_text().count("\n") > 20, "some steps")
        ranks[1].send_signal(signal.SIGTERM)
        said = [rank.communicate(timeout=DEADLINE_SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [75, 75], said
    (name,) = committed(echelon.folder / "checkpoints")
    taken = [len((echelon.folder / "records" / f"rank-{rank}").read_text().splitlines()) for rank in range(2)]
    assert taken == [name.step] * 2


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


SHARDED = """
import sys
import torch, echelon
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
world = echelon.join()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 17), torch.nn.Tanh(), torch.nn.Linear(17, 3))
mesh = init_device_mesh("cpu", (world.size,))
for part in (model[0], model[2], model):
    fully_shard(part, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
def total():
    moments = [optimizer.state[p]["exp_avg_sq"] for p in model.parameters() if p in optimizer.state]
    return [tensor.full_tensor().sum(dtype=torch.float64).item() for tensor in (*model.parameters(), *moments)]
with echelon.Checkpoint("sharded", model=model, optimizer=optimizer, every=None) as checkpoint:
    world.print("begins", checkpoint.step, total())
    while checkpoint.step < int(sys.argv[1]):
        model(torch.ones(4, 5) * checkpoint.step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoint.after_step()
    ended = total()
    world.print("ends", checkpoint.step, ended)
"""


def test_sharded_tensors_go_from_four_ranks_to_three_and_out_to_one_file(echelon):
    script = echelon.script("sharded.py", SHARDED)
    first = echelon("run", "-g", "4", script, "3")
    assert first.returncode == 0, first.stderr + first.stdout
    second = echelon("run", "-g", "3", script, "5")
    assert second.returncode == 0, second.stderr + second.stdout
    assert re.search(r"ends (3 .*)", first.stdout)[1] == re.search(r"begins (3 .*)", second.stdout)[1]
    assert echelon("export", "sharded", "out.pt").returncode == 0
    assert echelon("export", "sharded", "out.safetensors").returncode == 0
    import torch

    state = torch.load(echelon.folder / "out.pt", weights_only=True)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "0.weight": (17, 5), "0.bias": (17,), "2.weight": (3, 17), "2.bias": (3,),
    }  # fmt: skip
    sums = [tensor.sum(dtype=torch.float64).item() for tensor in state.values()]
    assert json.loads(re.search(r"ends 5 (.*)", second.stdout)[1])[:4] == sums
    assert read_safetensors(echelon.folder / "out.safetensors") == {
        name: tensor.flatten().tolist() for name, tensor in state.items()
    }


def read_safetensors(path):
    """By the format's own description, and nothing of ours."""
    import struct

    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        found[name] = list(struct.unpack(f"<{(end - begin) // 4}f", body[begin:end]))
    return found
