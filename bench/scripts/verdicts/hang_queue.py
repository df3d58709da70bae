"""One rank waits for a queue that no thread fills."""

import queue

import torch
from common import IS_CULPRIT, train

dist = train()
if IS_CULPRIT:
    queue.Queue().get()
dist.all_reduce(torch.ones(4))
