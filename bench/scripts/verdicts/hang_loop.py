"""One rank is in an endless loop and uses CPU time."""

import torch
from common import IS_CULPRIT, train


def search():
    number = 1
    while number:
        number += 1


dist = train()
if IS_CULPRIT:
    search()
dist.all_reduce(torch.ones(4))
