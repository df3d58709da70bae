"""One rank does not call new_group, the others wait for it."""

import torch
from common import IS_CULPRIT, train

dist = train()
group = None if IS_CULPRIT else dist.new_group(backend="gloo")
dist.all_reduce(torch.ones(4), group=group)
