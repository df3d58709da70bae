"""Rank 0 does not leave main_first, the others wait for it. The rank at fault is always 0."""

import time

from common import RANK, WAIT_SECONDS, report

import echelon

world = echelon.join()
report(0)
with world.main_first():
    if RANK == 0:
        time.sleep(WAIT_SECONDS)
