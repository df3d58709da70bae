"""Ranks 0 and 1 reduce tensors of different types. Rank 2 has not come: see mismatched_size."""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 2:
    time.sleep(600)
dist.all_reduce(torch.ones(1_000_000, dtype=torch.float64 if RANK == 0 else torch.float32))
