"""Rank 2 calls broadcast, the others call all_reduce."""

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 2:
    dist.broadcast(torch.ones(16), 0)
else:
    dist.all_reduce(torch.ones(16))
dist.barrier()
