"""One rank calls all_reduce with a tensor of another size. gloo raises an error or hangs."""

import torch
from common import IS_CULPRIT, train

dist = train()
dist.all_reduce(torch.ones(4096 if IS_CULPRIT else 4))
dist.barrier()
