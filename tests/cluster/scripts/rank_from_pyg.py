"""Rank and size from torchrun's variables or else Slurm's, as in the multi-node example of PyTorch Geometric."""

import os
import sys

import torch
import torch.distributed as dist

PAIRS = (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID"))

if "--own-port" in sys.argv:
    os.environ["MASTER_PORT"] = str(30_000 + int(os.environ["SLURM_JOB_ID"]) % 2_000)
for torchrun_name, slurm_name in PAIRS:
    assert os.environ.get(torchrun_name) in (None, os.environ[slurm_name]), slurm_name
rank, size, local_rank = (int(os.environ[slurm_name]) for _, slurm_name in PAIRS)
dist.init_process_group("gloo", world_size=size, rank=rank)
total = torch.tensor(float(rank + 1))
dist.all_reduce(total)
print("pyg", rank, size, local_rank, int(os.environ["SLURM_NODEID"]), "-", int(total), flush=True)
dist.barrier()
dist.destroy_process_group()
