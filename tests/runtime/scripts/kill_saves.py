"""Kills ranks with SIGKILL at random moments of their saves, over and over: kill_saves.py FOLDER KILLS SEED

Two forked ranks save as fast as they can, through the real protocol and a real store, and say of each step when it is
acknowledged. After each kill everything in the folder has to be whole, the bytes those of its step, and no step lost
that was acknowledged. Prints what happened as JSON.
"""

import json
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.council import Council
from echelon.runtime.checkpoint.fence import Standing
from echelon.runtime.checkpoint.reader import Reader
from echelon.runtime.checkpoint.retention import Retention
from echelon.runtime.checkpoint.save import Place
from echelon.runtime.checkpoint.saver import Saver
from echelon.runtime.checkpoint.snapshot import planned
from echelon.runtime.checkpoint.tree import Flattened
from echelon.runtime.checkpoint.verify import check_all, committed
from echelon.runtime.checkpoint.writer import sweep

RANKS = 2
NUMBERS = 40_000


def state_at(step):
    ramp = torch.arange(NUMBERS, dtype=torch.int64) * step
    return {"ramp": ramp, "halves": [ramp.float() / 2, step], "echelon": {"step": step}}


def alike(path, _):
    return path[0] == "ramp"


def be_a_rank(folder, rank, step, store, pipe):
    council = Council(dist.FileStore(str(store), RANKS), rank=rank, size=RANKS)
    place = Place(
        folder=folder, rank=rank, standing=Standing(), retention=Retention(last=2), timeout=timedelta(seconds=30)
    )
    if rank == 0:
        sweep(folder)
    saver = Saver(place, council, token=f"{os.getppid():x}{store.name}", say=lambda text: os.write(2, text.encode()))
    os.write(pipe, b"0\n")  # ready
    while True:
        step += 1
        own = Flattened({"rank": rank, "step": step, "bytes": torch.full((100,), step % 256, dtype=torch.uint8)})
        saver.begin(
            lambda step=step, own=own: planned(Flattened(state_at(step)), own, rank, RANKS, alike=alike),
            step=step,
            score=None,
        )
        saver.wait()
        if saver.saved == step:
            os.write(pipe, f"{step}\n".encode())


def one_kill(folder, step, number, draw):
    """How far it got before the kill, as acknowledged."""
    store = folder.parent / f"store-{number}"
    reading, writing = os.pipe()
    pids = []
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            try:
                be_a_rank(folder, rank, step, store, writing)
            finally:
                os._exit(1)
        pids.append(pid)
    os.close(writing)
    said = os.read(reading, 4)
    time.sleep(draw.uniform(0.0, 0.1))
    draw.shuffle(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        time.sleep(draw.choice([0.0, 0.0, 0.01]))
    for pid in pids:
        os.waitpid(pid, 0)
    with os.fdopen(reading) as pipe:
        acknowledged = [int(line) for line in (said.decode() + pipe.read()).split()]
    store.unlink(missing_ok=True)
    return max(acknowledged)


def check(folder, acknowledged):
    """The newest step, once everything that is there was found to be good."""
    found = committed(folder)
    for name in found:
        manifest = check_all(folder / str(name))
        with Reader.open(folder / str(name), manifest) as reader:
            state, own = reader.common(), [reader.own(rank) for rank in range(RANKS)]
        expected = state_at(name.step)
        assert state["ramp"].equal(expected["ramp"]), name
        assert state["halves"][0].equal(expected["halves"][0]), name
        assert [one["rank"] for one in own] == [0, 1], name
        assert all(one["bytes"].tolist() == [name.step % 256] * 100 for one in own), name
    newest = found[-1].step if found else 0
    assert newest >= acknowledged, f"step {acknowledged} was acknowledged, and the newest is {newest}"
    return newest


def main():
    folder, kills, draw = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    folder.mkdir()
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    step = inside = committed_unsaid = 0
    for number in range(kills):
        acknowledged = one_kill(folder, step, number, draw)
        inside += any(names.is_debris(path.name) for path in folder.iterdir())
        newest = check(folder, acknowledged)
        committed_unsaid += newest > acknowledged
        step = newest
    print(json.dumps({"kills": kills, "inside_a_save": inside, "unsaid": committed_unsaid, "steps": step}))


if __name__ == "__main__":
    main()
