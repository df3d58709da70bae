"""Kills ranks with SIGKILL at random moments of their saves, over and over: kill_saves.py FOLDER KILLS SEED

Two forked ranks save as fast as they can, through the real protocol and a real store, and say of each step when it is
acknowledged. After each kill everything in the folder has to be whole, the bytes those of its step, and no step lost
that was acknowledged; and a start would try the checkpoints from the last commit back. Prints what happened as JSON:
`bad` and `lost` have a line for each thing that should not be.
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

from echelon.train.checkpoint import file_format
from echelon.train.checkpoint.capture import plan_capture
from echelon.train.checkpoint.consensus import Consensus
from echelon.train.checkpoint.folder import RunContext
from echelon.train.checkpoint.reader import CheckpointReader
from echelon.train.checkpoint.retention import Retention, remove_leftovers
from echelon.train.checkpoint.saver import Saver
from echelon.train.checkpoint.tree import FlatState
from echelon.train.checkpoint.verify import (
    DamagedCheckpoint,
    committed_checkpoints,
    resume_candidates,
    verify_checkpoint,
)
from echelon.train.checkpoint.write import SaveContext

RANKS = 2
NUMBERS = 40_000


def state_at(step):
    ramp = torch.arange(NUMBERS, dtype=torch.int64) * step
    return {"ramp": ramp, "halves": [ramp.float() / 2, step], "echelon": {"step": step}}


def alike(path, _):
    return path[0] == "ramp"


def be_a_rank(folder, rank, step, store, pipe):
    consensus = Consensus(dist.FileStore(str(store), RANKS), rank=rank, size=RANKS)
    place = SaveContext(
        folder=folder, rank=rank, run_context=RunContext(), retention=Retention(last=2), timeout=timedelta(seconds=30)
    )
    if rank == 0:
        remove_leftovers(folder)
    saver = Saver(place, consensus, token=f"{os.getppid():x}{store.name}", say=lambda text: os.write(2, text.encode()))
    if step:
        saver.record_loaded(step, str(file_format.CheckpointName(step)))
    os.write(pipe, b"0\n")  # ready
    while True:
        step += 1
        own = FlatState({"rank": rank, "step": step, "bytes": torch.full((100,), step % 256, dtype=torch.uint8)})
        saver.begin(
            lambda step=step, own=own: plan_capture(FlatState(state_at(step)), own, rank, RANKS, alike=alike),
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


def problem_of(folder, name):
    """The difference from what was saved; None if there is none."""
    try:
        manifest = verify_checkpoint(folder / str(name))
        with CheckpointReader.open(folder / str(name), manifest) as reader:
            state, own = reader.common(), [reader.own(rank) for rank in range(RANKS)]
    except DamagedCheckpoint as damage:
        return str(damage)
    expected = state_at(name.step)
    right = (
        state["ramp"].equal(expected["ramp"])
        and state["halves"][0].equal(expected["halves"][0])
        and state["halves"][1] == name.step
        and [one["rank"] for one in own] == list(range(RANKS))
        and all(one["bytes"].tolist() == [name.step % 256] * 100 for one in own)
    )
    return None if right else f"{name} has other bytes than were saved"


def main():
    folder, kills, draw = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    folder.mkdir()
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    told = {"kills": 0, "inside_a_save": 0, "unsaid": 0, "steps": 0, "loads": 0, "bad": [], "lost": []}
    for number in range(kills):
        acknowledged = one_kill(folder, told["steps"], number, draw)
        told["inside_a_save"] += any(file_format.is_leftover(path.name) for path in folder.iterdir())
        found = committed_checkpoints(folder)
        newest = found[-1].step if found else 0
        told["loads"] += len(found)
        told["bad"] += [problem for name in found if (problem := problem_of(folder, name)) is not None]
        if resume_candidates(folder, None) != found[::-1]:
            told["bad"].append(f"kill {number}: {found} would be tried as {resume_candidates(folder, None)}")
        if newest < acknowledged:
            told["lost"].append(f"kill {number}: step {acknowledged} was acknowledged, and the newest is {newest}")
        told["unsaid"] += newest > acknowledged
        told["kills"], told["steps"] = number + 1, newest
    print(json.dumps(told))
    return 1 if told["bad"] or told["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
