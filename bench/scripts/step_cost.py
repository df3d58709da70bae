"""Measures the CPU time of checkpoint.steps between two steps, on two ranks: step_cost.py SECONDS_OF_A_STEP STEPS

Two loops over the same data, one without the library and one with it, take their steps turn about, so that a noisy
moment is shared. What is taken is the main thread's own time from the end of one step to the beginning of the next, in
microseconds: a laden machine does not change it much. Of each loop the mean, so the rounds of agreement are in it. The
first steps are not: there memory for saves is got ready, and rounds come closer together.

Each turn is half a step long, so either loop has its next step that many seconds after the last one, and rounds are as
far apart as they would be. It is filled with matrix products, which leave little in the cache; with 0 seconds it is a
step of DDP with the smallest of models, as long as that takes.

Rank 0 writes a line for each pair of loops: without, with.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import echelon

BEGINNING = 64
PAIRS = 7

length, steps = float(sys.argv[1]), int(sys.argv[2])
folder = Path(os.environ["BENCH_FOLDER"])
world = echelon.join()
torch.set_num_threads(1)
dataset = torch.utils.data.TensorDataset(torch.zeros(4 * steps * world.size, 4))
model = world.wrap(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
square = torch.rand(256, 256)
target = torch.empty_like(square)


def multiply(_):
    end = time.perf_counter() + length / 2
    while time.perf_counter() < end:
        torch.mm(square, square, out=target)


def train(x):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()


def loader_and_sampler():
    sampler = echelon.ElasticSampler(dataset, shuffle=False)
    return DataLoader(dataset, sampler=sampler, batch_size=4), sampler


def gaps():
    """Mean CPU microseconds between two steps: without the library, and with it."""
    work = multiply if length else train
    bare, _ = loader_and_sampler()
    loader, sampler = loader_and_sampler()
    checkpoint = echelon.Checkpoint(folder / "saved", every=10**9, model=model, sampler=sampler)
    loops = {"without": iter(bare), "with": iter(checkpoint.steps(loader))}
    found = {name: [] for name in loops}
    for _ in range(steps):
        for name, loop in loops.items():
            ended = time.thread_time()
            (x,) = next(loop)
            found[name].append(time.thread_time() - ended)
            work(x)
    checkpoint.close()
    return [1e6 * statistics.mean(seconds[BEGINNING:]) for seconds in found.values()]


gaps()
pairs = []
for _ in range(PAIRS):
    world.barrier()
    pairs.append(gaps())
if world.rank == 0:
    (folder / "results").write_text("\n".join(f"{bare} {ours}" for bare, ours in pairs))
