"""A DataLoader worker of rank 1 sleeps in the dataset; the other rank is in all_reduce."""

import time

import torch
import torch.distributed as dist
from common import RANK, arrive, join
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if RANK == 1 and index == 5:
            arrive()
            time.sleep(600)
        return torch.ones(4)


if __name__ == "__main__":
    join()
    for batch in DataLoader(Numbers(), batch_size=2, num_workers=2):
        if batch[0, 0] == 1 and RANK == 0:
            arrive()
        dist.all_reduce(batch)
