"""A short training on all ranks that ends in the way its argument names: `exits.py WAY [hold-gil]`.

With hold-gil no other thread gets the GIL by itself: a rank that can deadlock at its exit then does so in every run.
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def trained(wrap=DistributedDataParallel) -> torch.nn.Module:
    model = wrap(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
    return model


def main(way: str) -> None:
    dist.init_process_group("gloo")
    models = [trained(fully_shard if way == "fsdp2" else DistributedDataParallel)]  # destroyed when main returns
    if way == "two-models":
        models.append(trained())
    if way == "exception":
        raise ValueError("an exception ends this rank")
    if way != "no-destroy":
        dist.destroy_process_group()
    if way == "sys-exit":
        sys.exit(0)


if "hold-gil" in sys.argv:
    sys.setswitchinterval(30)
if sys.argv[1] == "module-level":
    dist.init_process_group("gloo")
    model = trained()
    dist.destroy_process_group()
else:
    main(sys.argv[1])
