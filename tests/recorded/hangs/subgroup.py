"""Rank 3 sleeps; rank 2 waits for it in their group, ranks 0 and 1 in the default group."""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
pairs = [dist.new_group([0, 1], group_desc="pair a"), dist.new_group([2, 3], group_desc="pair b")]
own = pairs[RANK // 2]
dist.all_reduce(torch.ones(8), group=own)
arrive()
if RANK == 3:
    time.sleep(600)
dist.all_reduce(torch.ones(8, dtype=torch.bfloat16), group=own)
dist.barrier()
