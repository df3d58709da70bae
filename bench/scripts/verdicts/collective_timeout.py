"""One rank does not reach an all_reduce within the short timeout of the process group."""

import time

import torch
from common import IS_CULPRIT, WAIT_SECONDS, train

dist = train(seconds=5)
if IS_CULPRIT:
    time.sleep(WAIT_SECONDS)
dist.all_reduce(torch.ones(4))
