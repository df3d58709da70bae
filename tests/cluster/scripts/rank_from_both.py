"""Some numbers from torchrun's variables, some from Slurm's."""

import os
import sys

import torch
import torch.distributed as dist

if "--own-port" in sys.argv:
    os.environ["MASTER_PORT"] = str(20_000 + int(os.environ["SLURM_JOB_ID"]) % 10_000)
rank, size = int(os.environ["RANK"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
dist.init_process_group("gloo", rank=rank, world_size=size)
total = torch.tensor(float(int(os.environ["SLURM_PROCID"]) + 1))
dist.all_reduce(total)
first_of_node = int(os.environ["SLURM_GTIDS"].split(",")[0])
node = first_of_node // int(os.environ["SLURM_NTASKS_PER_NODE"])
print("both", rank, size, rank - first_of_node, node, "-", int(total), flush=True)
dist.barrier()
dist.destroy_process_group()
