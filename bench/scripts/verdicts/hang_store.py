"""One rank waits for a key of the store that no rank sets."""

from datetime import timedelta

import torch
from common import IS_CULPRIT, WAIT_SECONDS, train
from torch.distributed.distributed_c10d import _get_default_store

dist = train()
if IS_CULPRIT:
    _get_default_store().wait(["never set"], timedelta(seconds=WAIT_SECONDS))
dist.all_reduce(torch.ones(4))
