"""A training that saves with echelon.Checkpoint, and stops in time by itself: it never looks for a notice."""

import argparse
import time

import torch
from torch.utils.data import DataLoader

import echelon

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=400)
parser.add_argument("--seconds", type=float, default=0.05)
args = parser.parse_args()

world = echelon.join()
torch.manual_seed(3)
model = world.wrap(torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
data = torch.arange(args.samples * 4, dtype=torch.float32).reshape(-1, 4) / args.samples
sampler = echelon.ElasticSampler(args.samples, seed=7)
loader = DataLoader(list(enumerate(data)), sampler=sampler, batch_size=1)

with echelon.Checkpoint(model=model, optimizer=optimizer, sampler=sampler, every=10) as checkpoint:
    print(f"from {checkpoint.step}", flush=True)
    for index, x in checkpoint.steps(loader):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {checkpoint.step} sample {int(index)}", flush=True)
        time.sleep(args.seconds)
print(f"weights {[w.hex() for w in torch.cat([p.flatten() for p in model.parameters()]).tolist()]}", flush=True)
