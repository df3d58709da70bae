"""One rank waits for a file lock that another descriptor holds."""

import fcntl
import tempfile
from pathlib import Path

import torch
from common import IS_CULPRIT, train

dist = train()
with tempfile.NamedTemporaryFile() as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    if IS_CULPRIT:
        with Path(held.name).open("rb") as wanted:
            fcntl.flock(wanted, fcntl.LOCK_EX)
    dist.all_reduce(torch.ones(4))
