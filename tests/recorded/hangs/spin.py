"""Rank 1 is in an endless loop; rank 0 waits for an asynchronous all_reduce."""

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
arrive()
while RANK == 1:
    pass
work = dist.all_reduce(torch.ones(4), async_op=True)
work.wait()
