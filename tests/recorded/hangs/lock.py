"""Rank 0 waits for a lock that another thread holds; rank 1 is in barrier."""

import threading

import torch.distributed as dist
from common import RANK, arrive, join

lock = threading.Lock()


def save() -> None:
    with lock:
        pass


join()
arrive()
if RANK == 0:
    lock.acquire()
    save()
dist.barrier()
