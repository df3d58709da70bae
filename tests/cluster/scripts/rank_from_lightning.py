"""Rank, size, address and port from Lightning's own reading of Slurm's variables."""

import os
import sys

import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments import SLURMEnvironment

if "--own-port" in sys.argv:
    del os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
assert SLURMEnvironment.detect()
slurm = SLURMEnvironment()
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = slurm.main_address, str(slurm.main_port)
dist.init_process_group("gloo", rank=slurm.global_rank(), world_size=slurm.world_size())
total = torch.tensor(float(slurm.global_rank() + 1))
dist.all_reduce(total)
facts = (slurm.global_rank(), slurm.world_size(), slurm.local_rank(), slurm.node_rank())
print("lightning", *facts, "-", int(total), flush=True)
slurm.validate_settings(num_devices=2, num_nodes=2)
dist.barrier()
dist.destroy_process_group()
