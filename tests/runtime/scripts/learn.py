"""Trains a small network with everything that has a state, and writes down which samples it took at which step.

    learn.py [--until N] [--every N] [--folder DIR] [--seconds S] [--records DIR]

Ends with a fingerprint of weights, optimizer and random numbers. No pickle may be read while it loads.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import echelon

parser = argparse.ArgumentParser()
parser.add_argument("--until", type=int, default=60)
parser.add_argument("--every", type=int, default=5)
parser.add_argument("--folder")
parser.add_argument("--seconds", type=float, default=0.0)
parser.add_argument("--records", type=Path, default=Path("records"))
args = parser.parse_args()


class Points(Dataset):
    def __len__(self):
        return 203

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        noise = torch.rand(()) * 0.01 + random.random() * 0.01 + np.random.random() * 0.01
        return index, torch.randn(6, generator=generator) + noise


world = echelon.join()
torch.manual_seed(0)
layers = [torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 3)]
model = world.wrap(torch.nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=7)
dataset = Points()
sampler = echelon.ElasticSampler(dataset, seed=11)
loader = DataLoader(dataset, sampler=sampler, batch_size=3)
torch.manual_seed(world.rank)
random.seed(world.rank)
np.random.seed(world.rank)

loading = True


def refuse_pickles(event, _):
    if loading and event == "pickle.find_class":
        raise RuntimeError("a pickle is being read")


sys.addaudithook(refuse_pickles)
args.records.mkdir(exist_ok=True)
record = (args.records / f"rank-{world.rank}").open("a", buffering=1)

parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "sampler": sampler}
with echelon.Checkpoint(args.folder, every=args.every, **parts) as checkpoint:
    loading = False
    for ids, points in checkpoint.steps(loader, until=args.until):
        optimizer.zero_grad()
        scaler.scale(model(points).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        time.sleep(args.seconds)
        taken = {"step": checkpoint.step, "epoch": sampler.epoch, "size": world.size, "ids": ids.tolist()}
        record.write(json.dumps({**taken, "start": os.environ.get("ECHELON_GENERATION", "")}) + "\n")

tensors = [*model.state_dict().values(), *(value for state in optimizer.state.values() for value in state.values())]
total = hashlib.sha256()
left = torch.tensor([random.random(), np.random.random(), scaler.get_scale(), scaler._get_growth_tracker()])
for tensor in (*tensors, torch.rand(4), left):
    total.update(bytes(tensor.detach().reshape(-1).view(torch.uint8).tolist()))
print(f"rank {world.rank} ends at {checkpoint.step} with {total.hexdigest()}", flush=True)
