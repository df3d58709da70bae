"""Rank 1 sleeps in the forward pass; the others wait in the backward pass of DDP."""

import time

import torch
from common import RANK, arrive, join
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.steps = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        if self.steps == 3:
            arrive()
            if RANK == 1:
                time.sleep(600)
        return self.linear(batch)


join()
model = DistributedDataParallel(Net())
for _ in range(5):
    model(torch.ones(2, 64)).sum().backward()
