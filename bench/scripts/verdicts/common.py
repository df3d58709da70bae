"""Shared by the scripts of the catalogue: the rank at fault, and a few ordinary steps on all ranks.

By hand: RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python hang_sleep.py, and the same with RANK=1.
"""

import os
import sys
import time
from datetime import timedelta

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
CULPRIT = int(os.environ.get("CULPRIT", "1")) % WORLD_SIZE
IS_CULPRIT = RANK == CULPRIT
WAIT_SECONDS = float(os.environ.get("WAIT_SECONDS", "600"))
"""How long the other ranks, or a rank that hangs, wait."""


def stamp():
    """Records when the ordinary part of this rank ended: what follows is the fault."""
    folder = os.environ.get("VERDICT_STAMPS", "")
    try:
        with open(f"{folder}/rank-{RANK}", "w") as file:  # noqa: PTH123
            file.write(str(time.time()))
    except OSError:
        pass  # run by hand, or on a host without this folder


def report(step):
    """Reports the step if echelon started this rank."""
    if "ECHELON_NODE_DIR" in os.environ and "NO_REPORTS" not in os.environ:
        import echelon

        echelon.report(step)


def train(steps=5, seconds=1800):
    """Joins the process group and takes a few ordinary steps. Returns torch.distributed."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    for step in range(steps):
        dist.all_reduce(torch.ones(4))
        print(f"step {step}", flush=True)
        report(step)
    stamp()
    return dist


def others_wait():
    """For scripts without a process group: only the rank at fault continues."""
    print(f"rank {RANK} runs", flush=True)
    report(0)
    stamp()
    if not IS_CULPRIT:
        time.sleep(WAIT_SECONDS)
        sys.exit(0)


def drop_root():
    """Limits on processes and file permissions do not apply to root."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


stamp()
