"""One rank is in a C function that holds the GIL: a regular expression that does not end."""

import re

import torch
from common import IS_CULPRIT, train

dist = train()
if IS_CULPRIT:
    re.match(r"(a+)+$", "a" * 60 + "b")
dist.all_reduce(torch.ones(4))
