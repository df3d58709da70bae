"""One rank raises an exception between two collectives. The others then lose their connection to it."""

import torch
from common import IS_CULPRIT, report, train

dist = train()
for step in range(5, 20):
    if IS_CULPRIT and step == 7:
        raise ValueError(f"bad batch at step {step}")
    dist.all_reduce(torch.ones(4))
    report(step)
