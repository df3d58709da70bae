"""Rank 1 waits for a message of rank 0, which waits in a barrier."""

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 1:
    dist.recv(torch.ones(4), 0)
dist.barrier()
