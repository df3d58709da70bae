"""A small training in a world of one, and the checkpoints it leaves."""

import json

import pytest

from echelon.runtime.checkpoint.checkpoint import Checkpoint

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
    """Checkpoints of these steps, and the things as they were at the last."""
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
    """A start that loads an earlier step, goes another way from there, and saves."""
    mine = things()
    checkpoint = Checkpoint(folder, every=None, keep=3, **mine)
    checkpoint.load(to)
    train(mine, 1)
    checkpoint.step = step
    checkpoint.save(wait=True)
    checkpoint.close()
    return fingerprint(mine)
