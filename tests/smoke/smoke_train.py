"""Trains a small network for some steps, saves it with echelon.Checkpoint, and prints the weights at the end."""

import argparse
import time

import torch

import echelon

parser = argparse.ArgumentParser()
parser.add_argument("--until", type=int, default=40)
parser.add_argument("--seconds", type=float, default=0.05)
args = parser.parse_args()

world = echelon.join()
torch.manual_seed(0)
model = world.wrap(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
dataset = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
sampler = echelon.ElasticSampler(dataset, seed=1)
loader = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=2)

with echelon.Checkpoint(every=2, model=model, optimizer=optimizer, sampler=sampler) as checkpoint:
    for (points,) in checkpoint.steps(loader, until=args.until):
        optimizer.zero_grad()
        model(points).square().mean().backward()
        optimizer.step()
        time.sleep(args.seconds)

weights = [value for tensor in model.parameters() for value in tensor.flatten().tolist()]
print(f"rank {world.rank} of {world.size} ends at step {checkpoint.step} with {weights}", flush=True)
