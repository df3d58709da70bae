"""One rank expects a tensor of another type. The sender sleeps: once it sends, gloo aborts a rank instead."""

import time

import torch
from common import IS_CULPRIT, RANK, WAIT_SECONDS, WORLD_SIZE, train

dist = train()
if RANK == WORLD_SIZE - 1:
    time.sleep(WAIT_SECONDS)
dist.broadcast(torch.ones(1_000_000, dtype=torch.float64 if IS_CULPRIT else torch.float32), src=WORLD_SIZE - 1)
