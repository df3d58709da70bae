"""An ordinary torchrun script: every rank adds its number to the others'."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
version = f"{sys.version_info[0]}.{sys.version_info[1]}"
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {total.item()} on Python {version}", flush=True)
dist.destroy_process_group()
