"""One rank sleeps before an all_reduce that the others have entered."""

import time

import torch
from common import IS_CULPRIT, WAIT_SECONDS, train

dist = train()
if IS_CULPRIT:
    time.sleep(WAIT_SECONDS)
dist.all_reduce(torch.ones(4))
