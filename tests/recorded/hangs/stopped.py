"""Rank 1 is stopped by SIGSTOP; the others are in barrier."""

import os
import signal

import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
if RANK == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.barrier()
