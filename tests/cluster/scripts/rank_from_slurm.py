"""Rank, size, first node and port from Slurm's variables alone, as under plain srun."""

import os
import subprocess

import torch
import torch.distributed as dist

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
hosts = subprocess.run(
    ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], check=True, capture_output=True, text=True
).stdout.split()
address, port = hosts[0], 10_000 + int(os.environ["SLURM_JOB_ID"]) % 10_000
dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=size)
total = torch.tensor(float(rank + 1))
dist.all_reduce(total)
local, node = int(os.environ["SLURM_LOCALID"]), int(os.environ["SLURM_NODEID"])
print("slurm", rank, size, local, node, os.environ.get("SLURM_CPUS_PER_TASK"), int(total), flush=True)
assert hosts[node] == os.environ["SLURMD_NODENAME"]
assert len(hosts) == int(os.environ["SLURM_NNODES"])
dist.barrier()
dist.destroy_process_group()
