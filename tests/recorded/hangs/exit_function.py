"""Rank 1 has left its script but an atexit function sleeps; rank 0 is in barrier."""

import atexit
import time

import torch.distributed as dist
from common import RANK, arrive, join


def upload() -> None:
    arrive()
    time.sleep(600)


join()
if RANK == 1:
    atexit.register(upload)
else:
    arrive()
    dist.barrier()
