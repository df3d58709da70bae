"""One rank waits for a message that no rank sends, the others continue to an all_reduce."""

import torch
from common import IS_CULPRIT, RANK, WORLD_SIZE, train

dist = train()
if IS_CULPRIT:
    dist.recv(torch.empty(1), src=(RANK + 1) % WORLD_SIZE)
dist.all_reduce(torch.ones(4))
