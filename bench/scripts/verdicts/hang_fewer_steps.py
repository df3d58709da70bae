"""One rank has fewer batches, leaves the loop early and waits for a message at the end."""

import torch
from common import IS_CULPRIT, RANK, WORLD_SIZE, report, train

dist = train()
for step in range(5, 8 if IS_CULPRIT else 10):
    dist.all_reduce(torch.ones(4))
    report(step)
if IS_CULPRIT:
    dist.recv(torch.empty(1), src=(RANK + 1) % WORLD_SIZE)
