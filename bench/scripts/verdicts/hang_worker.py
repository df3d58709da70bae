"""A DataLoader worker of one rank does not return a batch."""

import time

import torch
from common import IS_CULPRIT, WAIT_SECONDS, train
from torch.utils.data import DataLoader, Dataset


class Stuck(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 6 and IS_CULPRIT:
            time.sleep(WAIT_SECONDS)
        return torch.ones(4) * index


dist = train()
for batch in DataLoader(Stuck(), batch_size=2, num_workers=1):
    dist.all_reduce(batch)
