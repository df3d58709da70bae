"""One rank waits for a program that does not end."""

import subprocess

import torch
from common import IS_CULPRIT, WAIT_SECONDS, train

dist = train()
if IS_CULPRIT:
    subprocess.run(["sleep", str(WAIT_SECONDS)], check=True)
dist.all_reduce(torch.ones(4))
