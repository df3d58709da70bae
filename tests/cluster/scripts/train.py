"""A small training with real collectives: a step is a sample on every rank; its state is saved and taken up again."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch

import echelon

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=40)
parser.add_argument("--seconds", type=float, default=0.05)
parser.add_argument("--state", type=Path, help="where to save how far it has come")
parser.add_argument("--wait-for", type=Path, help="stand still at --at until this file is there")
parser.add_argument("--at", type=int, default=3)
parser.add_argument("--fail", type=int, default=-1, help="this rank raises at --at")
args = parser.parse_args()

world = echelon.join()
sampler = echelon.ElasticSampler(args.samples, seed=7)
if args.state and args.state.exists():
    sampler.load_state_dict(json.loads(args.state.read_text()))
first = sampler.state_dict()["consumed"]


def save() -> None:
    if args.state and world.rank == 0:
        part = args.state.with_suffix(".part")
        part.write_text(json.dumps(sampler.state_dict()))
        part.replace(args.state)


print(f"on {os.uname().nodename} with {os.environ.get('CUDA_VISIBLE_DEVICES')!r}, from {first}", flush=True)
for step, sample in enumerate(sampler, start=first // world.size):
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    assert int(total) == world.size
    echelon.report(step)
    print(f"step {step} sample {sample}", flush=True)
    if step == args.at and args.fail == world.rank:
        raise ValueError("this rank was told to fail")
    while step == args.at and args.wait_for and not args.wait_for.exists():
        time.sleep(0.01)
    sampler.advance(world.size)
    time.sleep(args.seconds)
    stop = torch.tensor(float(echelon.notice_given()))
    torch.distributed.all_reduce(stop)
    save()
    if stop:
        sys.exit(75)
print("done", flush=True)
