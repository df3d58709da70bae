"""One rank is stopped by SIGSTOP."""

import os
import signal

import torch
from common import IS_CULPRIT, train

dist = train()
if IS_CULPRIT:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.all_reduce(torch.ones(4))
