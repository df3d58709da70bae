"""The first collective of a group: rank 3 has not called it, so no recorder knows that it is a member."""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
arrive()
if RANK == 3:
    time.sleep(600)
dist.all_reduce(torch.ones(8), group=pairs[RANK // 2])
time.sleep(600)
