"""Rank 1 opens a named pipe that has no writer; rank 0 is in barrier."""

import os

import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 1:
    os.mkfifo("shard-7.bin")
    os.open("shard-7.bin", os.O_RDONLY)
dist.barrier()
