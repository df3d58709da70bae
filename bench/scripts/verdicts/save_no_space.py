"""One rank saves a model with torch.save on a file system that is full. See no_space.py for SMALL_FOLDER."""

import os
from pathlib import Path

import torch
from common import others_wait

others_wait()
torch.save(torch.zeros(64 << 20), Path(os.environ["SMALL_FOLDER"]) / "model.pt")
