"""One rank returns from the script with exit code 0 while the others continue."""

import sys

import torch
from common import IS_CULPRIT, report, train

dist = train()
if IS_CULPRIT:
    sys.exit(0)
for step in range(5, 100):
    dist.all_reduce(torch.ones(4))
    report(step)
