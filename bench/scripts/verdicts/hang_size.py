"""One rank expects a tensor of another size. The sender sleeps: once it sends, gloo aborts a rank instead."""

import time

import torch
from common import IS_CULPRIT, RANK, WAIT_SECONDS, WORLD_SIZE, train

dist = train()
if RANK == WORLD_SIZE - 1:
    time.sleep(WAIT_SECONDS)
dist.broadcast(torch.ones(4_000_000 if IS_CULPRIT else 1_000_000), src=WORLD_SIZE - 1)
