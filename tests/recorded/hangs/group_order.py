"""Ranks 0 and 1 use two groups in a different order."""

import torch
import torch.distributed as dist
from common import RANK, arrive, join

join()
first, second = dist.new_group([0, 1], group_desc="first"), dist.new_group([0, 1], group_desc="second")
for group in (first, second):
    dist.all_reduce(torch.ones(2), group=group)
arrive()
for group in (first, second) if RANK == 0 else (second, first):
    dist.all_reduce(torch.ones(2), group=group)
