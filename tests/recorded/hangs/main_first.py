"""Rank 0 sleeps in a main_first block; the others wait for it."""

import time

import torch.distributed as dist
from common import arrive

import echelon


def download() -> None:
    arrive()
    time.sleep(600)


world = echelon.join()
dist.barrier()
arrive()
with world.main_first():
    download()
