"""What checkpoint.steps costs between two steps, on two ranks: step_cost.py SECONDS_OF_A_STEP STEPS

Between the end of one step and the beginning of the next, with the library less without it: the mean in microseconds
without the longest 0.5 %, in which somebody else had the core. A round of agreement every 50 ms is in it.
"""

import os
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


def mean_gap(batches):
    """Seconds from the end of a step to the beginning of the next."""
    gaps, ended = [], time.perf_counter()
    for _ in batches:
        gaps.append(time.perf_counter() - ended)
        time.sleep(length)
        ended = time.perf_counter()
    usual = sorted(gaps)[: -max(1, len(gaps) // 200)]
    return sum(usual) / len(usual)


def loader_and_sampler():
    sampler = echelon.ElasticSampler(dataset, shuffle=False)
    return DataLoader(dataset, sampler=sampler, batch_size=4), sampler


def bare():
    loader, _ = loader_and_sampler()
    return mean_gap(loader)


def with_library():
    loader, sampler = loader_and_sampler()
    folder = Path(os.environ["BENCH_FOLDER"]) / "saved"
    checkpoint = echelon.Checkpoint(folder, every=10**9, model=model, sampler=sampler)
    seconds = mean_gap(checkpoint.steps(loader))
    checkpoint.close()
    return seconds


with_library()
costs = []
for _ in range(5):
    without = bare()
    world.barrier()
    costs.append(1e6 * (with_library() - without))
    world.barrier()
if world.rank == 0:
    (Path(os.environ["BENCH_FOLDER"]) / "results").write_text(" ".join(map(str, costs)))
