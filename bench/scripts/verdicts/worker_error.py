"""A DataLoader worker of one rank fails: worker_error.py raise|kill."""

import os
import signal
import sys

import torch
from common import others_wait
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5 and sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 5:
            raise KeyError("label")
        return torch.ones(4)


others_wait()
for _ in DataLoader(Samples(), batch_size=2, num_workers=1):
    pass
