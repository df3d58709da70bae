"""Rank 1 waits for a lock on a file that rank 0 holds while it is in barrier."""

import fcntl
import os

import torch.distributed as dist
from common import RANK, arrive, join

join()
file = os.open("cache.lock", os.O_RDWR | os.O_CREAT)
if RANK == 0:
    fcntl.flock(file, fcntl.LOCK_EX)
dist.barrier()
arrive()
if RANK == 1:
    fcntl.flock(file, fcntl.LOCK_EX)
dist.barrier()
