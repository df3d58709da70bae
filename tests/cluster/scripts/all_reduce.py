"""Adds up the ranks over the network and says where it ran."""

import datetime as dt
import os
import socket

import torch
import torch.distributed

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
torch.distributed.init_process_group(
    "gloo", init_method="tcp://n1:29500", rank=rank, world_size=size, timeout=dt.timedelta(seconds=30)
)
total = torch.tensor(float(rank + 1))
torch.distributed.all_reduce(total)
print(socket.gethostname(), total.item(), flush=True)
torch.distributed.destroy_process_group()
