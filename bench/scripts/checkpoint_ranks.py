"""Measures each way to save and restore 500 MB of model and Adam state on four ranks. Rank 0 writes JSON.

checkpoint_ranks.py REPEATS
"""

import json
import logging
import os
import shutil
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import echelon

warnings.simplefilter("ignore")  # torch.distributed.checkpoint prints many warnings
logging.disable(logging.WARNING)

LAYERS, WIDTH = 10, 2048
repeats = int(sys.argv[1])
folder = Path(os.environ["BENCH_FOLDER"])
world = echelon.join()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
optimizer = torch.optim.Adam(model.parameters())
for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
optimizer.step()
optimizer.zero_grad()
tensors = [*model.parameters(), *(value for state in optimizer.state.values() for value in state.values())]
state_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
checkpoint = echelon.Checkpoint(folder / "ours", every=None, keep=2, model=model, optimizer=optimizer)
share = [tensor.detach().view(-1)[: tensor.numel() // world.size] for tensor in tensors if tensor.numel() > world.size]
room = [torch.zeros_like(part) for part in share]


def slowest(work):
    """Seconds until the last rank has finished."""
    dist.barrier()
    began = time.perf_counter()
    work()
    seconds = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def memcpy():
    for part, target in zip(share, room, strict=True):
        target.copy_(part)


def save_on_rank_0():
    if world.rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "one.pt")
    dist.barrier()


def dcp_state():
    both = get_state_dict(model, optimizer)
    return {"model": both[0], "optimizer": both[1]}


def dcp_save():
    dcp.save(dcp_state(), checkpoint_id=folder / "dcp")


def load_on_every_rank():
    state = torch.load(folder / "one.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


results = {name: [] for name in ("memcpy", "ours", "to the commit", "torch.save", "dcp.save", "load", "torch.load")}
for number in range(repeats + 1):
    checkpoint.step = number
    row = {"memcpy": slowest(memcpy), "ours": slowest(checkpoint.save)}
    row["to the commit"] = row["ours"] + slowest(checkpoint.wait)
    row["torch.save"] = slowest(save_on_rank_0)
    row["dcp.save"] = slowest(dcp_save)
    ways = {"load": checkpoint.load, "torch.load": load_on_every_rank}
    for name in sorted(ways, reverse=number % 2 == 0):  # alternate: the first one has to allocate memory
        optimizer.state.clear()  # as in a process that has just started
        row[name] = slowest(ways[name])
    if number:  # the first round is a warm-up for all of them
        for name, seconds in row.items():
            results[name].append(seconds)
    assert checkpoint.saved == number, checkpoint.problem
    if world.rank == 0:
        shutil.rmtree(folder / "dcp")
    dist.barrier()
if world.rank == 0:
    written = sum(path.stat().st_size for path in (folder / "ours" / f"step-{repeats:08d}").iterdir())
    results["written"] = [written / state_bytes]
    (folder / "results").write_text(json.dumps(results))
checkpoint.close()
