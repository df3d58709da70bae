"""One rank calls barrier, the others call all_reduce."""

import torch
from common import IS_CULPRIT, train

dist = train()
if IS_CULPRIT:
    dist.barrier()
else:
    dist.all_reduce(torch.ones(4))
