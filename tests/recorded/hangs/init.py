"""Rank 1 sleeps before init_process_group."""

import time

from common import RANK, arrive, join

arrive()
if RANK == 1:
    time.sleep(600)
join()
