"""Measures a sampler in a separate process: samples.py echelon|torch first|memory|each LENGTH RANKS"""

import sys
import time
from collections import deque
from itertools import islice
from pathlib import Path

import torch
from torch.utils.data import DistributedSampler

import echelon


def sampler(kind: str, length: int, ranks: int):
    if kind == "torch":
        return DistributedSampler(range(length), num_replicas=ranks, rank=0)
    return echelon.ElasticSampler(length, rank=0, world_size=ranks)


def first_milliseconds(*asked) -> float:
    began = time.perf_counter()
    next(iter(sampler(*asked)))
    return 1000 * (time.perf_counter() - began)


def peak_mebibytes(*asked) -> float:
    """The additional memory of the process while it draws the first 100,000 indices."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak that the kernel records
    before = status("VmRSS")
    deque(islice(sampler(*asked), 100_000), maxlen=0)
    return (status("VmHWM") - before) / 1024


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def each_nanoseconds(*asked) -> float:
    asked_for = sampler(*asked)
    began = time.perf_counter()
    deque(asked_for, maxlen=0)
    return 1e9 * (time.perf_counter() - began) / len(asked_for)


MEASURES = {"first": first_milliseconds, "memory": peak_mebibytes, "each": each_nanoseconds}
kind, measure, length, ranks = sys.argv[1], MEASURES[sys.argv[2]], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)  # as in a rank
deque(sampler(kind, 100, 1), maxlen=0)  # torch loads modules at the first use, which would be counted
print(measure(kind, length, ranks))
