"""Adds up the ranks over the network, then says where it ran and what it was given."""

import os
import socket
import sys

import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
total = torch.tensor(float(torch.distributed.get_rank() + 1))
torch.distributed.all_reduce(total)
print("sum", total.item(), "on", socket.gethostname(), flush=True)
print(repr((sys.argv[1:], os.environ.get("NASTY"), os.environ.get("X_TOKEN"))), flush=True)
torch.distributed.destroy_process_group()
