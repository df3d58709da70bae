"""A script for `python -m torch.distributed.launch`, which in older versions of torch passed --local-rank.

echelon run --launcher legacy with_launch.py
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from task import all_must_stop, batch, commit, network, newest, note
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
parser.add_argument("--out", type=Path, default=Path("launch-out"))
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--pause", type=float, default=0.1, help="seconds per step, in place of a larger model")
args = parser.parse_args()

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", args.local_rank) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)  # otherwise the first collective of every rank would use GPU 0
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
model = DistributedDataParallel(network().to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
args.out.mkdir(exist_ok=True, parents=True)

begin = 0
saved = newest(args.out)
if saved is not None:
    state = torch.load(saved / "state.pt", map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = int(saved.name.removeprefix("step-"))
if rank == 0:
    print(f"from step {begin} on {dist.get_world_size()} ranks", flush=True)


def save(step: int) -> None:
    if rank == 0:
        draft = args.out / f"draft-{step:06}"
        draft.mkdir(exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, draft / "state.pt")
        commit(draft, args.out, step)
    dist.barrier()


for step in range(begin, args.steps):
    if all_must_stop(device):
        if step > begin:
            save(step)
        if rank == 0:
            print(f"stopped in time at step {step}", flush=True)
        sys.exit(75)
    points, heights = (tensor.to(device) for tensor in batch(step, rank))
    loss = torch.nn.functional.mse_loss(model(points), heights)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    if rank == 0:
        note(args.out, step, mean)
    time.sleep(args.pause)

if rank == 0:
    print(f"loss {mean.item():.4f} after {args.steps} steps", flush=True)
dist.destroy_process_group()
