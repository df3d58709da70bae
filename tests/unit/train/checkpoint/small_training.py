"""A small training on one rank, and its checkpoints."""

import json

import pytest

from echelon.train.checkpoint.api import Checkpoint

torch = pytest.importorskip("torch")


def things():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def train(things, steps):
    for _ in range(steps):
        things["model"](torch.randn(6, 4)).square().mean().backward()
        things["optimizer"].step()
        things["optimizer"].zero_grad()
        things["scheduler"].step()


def fingerprint(things):
    return json.dumps({name: repr(thing.state_dict()) for name, thing in things.items()})


def saved_at(folder, *steps, **options):
    """Saves checkpoints of these steps, and returns the trained objects."""
    mine = things()
    checkpoint = Checkpoint(folder, every=None, keep=9, **options, **mine)
    for step in steps:
        train(mine, 1)
        checkpoint.step = step
        checkpoint.save(wait=True)
        assert checkpoint.saved == step
    checkpoint.close()
    return mine


def gone_back(folder, to, step):
    """Loads step `to`, trains from there, saves `step`, and returns the fingerprint."""
    mine = things()
    checkpoint = Checkpoint(folder, every=None, keep=3, **mine)
    checkpoint.load(to)
    train(mine, 1)
    checkpoint.step = step
    checkpoint.save(wait=True)
    checkpoint.close()
    return fingerprint(mine)
