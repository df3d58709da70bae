"""The same two spirals as in the quickstart, as an outline filled in; Echelon does the saving, resuming and stopping.

echelon run -g 2 --restarts 1 examples/trainer/train.py --kill-rank 1 --kill-at 120
"""

import argparse
import os
import signal

import torch

import echelon

parser = argparse.ArgumentParser()
parser.add_argument("--kill-rank", type=int, default=-1, help="this rank dies once, of a real SIGKILL")
parser.add_argument("--kill-at", type=int, default=120)
args = parser.parse_args()


def spirals(count: int, seed: int) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    angle = torch.rand(count, generator=generator) * 9 + 1
    turn = angle + labels * torch.pi
    points = torch.stack([turn.cos(), turn.sin()], dim=1) * angle[:, None] / 10
    return torch.utils.data.TensorDataset(points, labels)


class Spirals(echelon.Trainer):
    steps = 300
    epochs = 1000
    batch_size = 128
    every = 25

    def initialize(self):
        layers = [torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def dataset(self):
        return spirals(10_000, seed=0)

    def train_step(self, batch):
        points, labels = batch
        first_start = os.environ.get("ECHELON_GENERATION", "0") == "0"
        if first_start and self.world.rank == args.kill_rank and self.checkpoint.step == args.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.functional.cross_entropy(self.model(points), labels)


trainer = Spirals()
trainer.train()
points, labels = spirals(2000, seed=1).tensors
right = (trainer.model(points.to(trainer.world.device)).argmax(1).cpu() == labels).float().mean()
trainer.world.print(f"{right:.1%} of 2000 new points are told apart after {trainer.checkpoint.step} steps")
