"""Rank 1 sleeps in its data code; the others are in all_reduce #4."""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join


def load() -> None:
    arrive()
    time.sleep(600)


join()
if RANK == 1:
    load()
arrive()
dist.all_reduce(torch.ones(1024, 1024, 3))
