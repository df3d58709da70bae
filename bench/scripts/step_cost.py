"""What checkpoint.steps costs between two steps, on two ranks: step_cost.py SECONDS_OF_A_STEP STEPS

Between the end of one step and the beginning of the next, with the library less without it: the mean of the main
thread's own time in microseconds, which a laden machine does not change much. The rounds of agreement are in it; the
first steps are not, where the memory for saves is got ready.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import echelon

length, steps = float(sys.argv[1]), int(sys.argv[2])
world = echelon.join()
torch.set_num_threads(1)
dataset = torch.utils.data.TensorDataset(torch.zeros(4 * steps * world.size, 1))
model = torch.nn.Linear(4, 4)


square = torch.rand(256, 256)
target = torch.empty_like(square)


def compute():
    end = time.perf_counter() + length
    while time.perf_counter() < end:
        torch.mm(square, square, out=target)


def loader_and_sampler():
    sampler = echelon.ElasticSampler(dataset, shuffle=False)
    return DataLoader(dataset, sampler=sampler, batch_size=4), sampler


def gaps():
    """CPU seconds from the end of a step to the beginning of the next: without the library, and with it."""
    loader, _ = loader_and_sampler()
    other, sampler = loader_and_sampler()
    folder = Path(os.environ["BENCH_FOLDER"]) / "saved"
    checkpoint = echelon.Checkpoint(folder, every=10**9, model=model, sampler=sampler)
    walks = {"without": iter(loader), "with": iter(checkpoint.steps(other))}
    found = {name: [] for name in walks}
    for _ in range(steps):  # turn about, so that a noisy second is shared
        for name, walk in walks.items():
            compute()
            ended = time.thread_time()
            next(walk)
            found[name].append(time.thread_time() - ended)
    checkpoint.close()
    return found


gaps()
costs = []
for _ in range(5):
    found = gaps()
    costs.append(1e6 * (statistics.mean(found["with"][5:]) - statistics.mean(found["without"][5:])))
    world.barrier()
if world.rank == 0:
    (Path(os.environ["BENCH_FOLDER"]) / "results").write_text(" ".join(map(str, costs)))
