"""One rank opens a named pipe that no process writes."""

import os
import tempfile
from pathlib import Path

import torch
from common import IS_CULPRIT, train

dist = train()
with tempfile.TemporaryDirectory() as folder:
    if IS_CULPRIT:
        pipe = Path(folder) / "samples.bin"
        os.mkfifo(pipe)
        pipe.read_bytes()
    dist.all_reduce(torch.ones(4))
