"""Rank and size from RANK and WORLD_SIZE, as under torchrun."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor(float(dist.get_rank() + 1))
dist.all_reduce(total)
local, node = int(os.environ["LOCAL_RANK"]), int(os.environ["GROUP_RANK"])
print("variables", dist.get_rank(), dist.get_world_size(), local, node, "-", int(total), flush=True)
dist.barrier()
dist.destroy_process_group()
