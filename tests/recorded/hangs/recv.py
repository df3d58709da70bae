"""Rank 1 waits for a message that rank 0 does not send: rank 0 sleeps."""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 1:
    dist.recv(torch.ones(4), 0)
elif RANK == 0:
    time.sleep(600)
else:
    dist.barrier()
