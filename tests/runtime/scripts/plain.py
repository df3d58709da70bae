"""A torchrun-style script without echelon: adds up its ranks, then does what `--do` names.

--local-rank is what the legacy launcher passes. After the sum it does one of: fail, stop (at the notice, with
75, until it has been started often enough), or hang.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--do", default="end")
parser.add_argument("--who", type=int, default=0)
parser.add_argument("--code", type=int, default=7)
parser.add_argument("--starts", type=int, default=1, help="The start at which it ends well.")
parser.add_argument("--count", type=Path, help="Where rank 0 counts its starts.")
parser.add_argument("--local-rank", type=int)
args, rest = parser.parse_known_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor(float(rank + 1))
dist.all_reduce(total)
local = os.environ.get("LOCAL_RANK") if args.local_rank is None else f"argument {args.local_rank}"
said = (
    f"rank {rank} sum {total.item()} local {local} {rest} {os.environ.get('NASTY')!r} at {os.environ['MASTER_ADDR']}\n"
)
os.write(1, said.encode())  # as a whole: print writes the line break by itself where output is not buffered
starts = int(args.count.read_text()) + 1 if args.count and args.count.exists() else 1
dist.barrier()
if args.count and rank == 0:
    args.count.write_text(str(starts))
if args.do == "fail" and rank == args.who:
    dist.destroy_process_group()  # whose threads may otherwise abort the interpreter on its way out
    sys.exit(args.code)
if args.do in ("fail", "hang"):
    print("waiting", flush=True)
    time.sleep(600)
if args.do == "stop" and starts < args.starts:
    while not Path(os.environ["JOB_STATE"], "notice").exists():
        time.sleep(0.05)
    time.sleep(5 * (rank % 2))  # a save that takes longer on some ranks
    print(f"rank {rank} saved", flush=True)
    sys.exit(75)
if args.do == "again" and starts < args.starts:
    sys.exit(75)
dist.destroy_process_group()
