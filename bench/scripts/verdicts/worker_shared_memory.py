"""DataLoader workers of one rank fill /dev/shm. Needs a small /dev/shm, such as that of a container."""

import torch
from common import others_wait
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.ones(4 << 20)


others_wait()
kept = list(DataLoader(Samples(), batch_size=8, num_workers=2))
