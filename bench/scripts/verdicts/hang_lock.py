"""One rank takes a lock twice."""

import threading

import torch
from common import IS_CULPRIT, train

dist = train()
lock = threading.Lock()
if IS_CULPRIT:
    lock.acquire()
    lock.acquire()
dist.all_reduce(torch.ones(4))
