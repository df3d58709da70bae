"""Rank 1 sleeps; the others wait in monitored_barrier, which no recorder shows."""

import time
from datetime import timedelta

import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 1:
    time.sleep(600)
dist.monitored_barrier(timeout=timedelta(minutes=10))
