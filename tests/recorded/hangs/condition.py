"""Rank 1 waits for an item of a queue; rank 0 is in barrier."""

import queue

import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 1:
    queue.Queue().get()
dist.barrier()
