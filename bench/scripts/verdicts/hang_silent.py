"""One rank sleeps. No rank reports a step or writes a line."""

import time

import torch
import torch.distributed as dist
from common import IS_CULPRIT, WAIT_SECONDS

dist.init_process_group("gloo")
if IS_CULPRIT:
    time.sleep(WAIT_SECONDS)
dist.all_reduce(torch.ones(4))
