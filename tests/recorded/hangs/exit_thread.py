"""Rank 1 has left its script but waits for a thread; rank 0 is in barrier."""

import threading
import time

import torch.distributed as dist
from common import RANK, arrive, join


def upload() -> None:
    time.sleep(600)


join()
arrive()
if RANK == 1:
    threading.Thread(target=upload).start()
else:
    dist.barrier()
