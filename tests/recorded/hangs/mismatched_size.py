"""Ranks 0 and 1 reduce tensors of different sizes. Rank 2 has not come.

With all ranks there, gloo aborts the rank that receives more than it expects, so this would be no hang.
"""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 2:
    time.sleep(600)
dist.all_reduce(torch.ones(4_000_000 if RANK == 0 else 1_000_000))
