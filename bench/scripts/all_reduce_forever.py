"""All-reduces until it is killed. Writes time and pid after the first all_reduce of each generation and attempt."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

if "BENCH_NOTICE" in os.environ:
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
counts = {"generation": "TORCHELASTIC_RESTART_COUNT", "attempt": "ECHELON_ATTEMPT"}
for kind, variable in counts.items():
    name = f"{kind}-{os.environ.get(variable, 0)}-{dist.get_rank()}"
    part = Path(os.environ["BENCH_FOLDER"], f".{name}")
    part.write_text(f"{time.time()} {os.getpid()}")
    part.rename(part.with_name(name))
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.005)
