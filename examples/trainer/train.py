"""Trains a small network to count in English, letter by letter, with a subclass of echelon.Trainer.

echelon run -N 2 --procs-per-node 2 --restarts 1 examples/trainer/train.py --kill-rank 3
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import torch
from counting import LETTERS, Windows, encode

import echelon

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--every", type=int, default=25, help="steps between checkpoints")
parser.add_argument("--kill-rank", type=int, default=-1, help="this rank kills itself once, with SIGKILL")
parser.add_argument("--kill-at", type=int, default=120)
parser.add_argument("--trace", type=Path, help="folder in which each rank records the samples of each step")
args = parser.parse_args()


class Reader(torch.nn.Module):
    """Predicts the letter after each letter, from the letters before it."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(len(LETTERS), 32)
        self.read = torch.nn.GRU(32, 128, batch_first=True)
        self.guess = torch.nn.Linear(128, len(LETTERS))

    def forward(self, letters, memory=None):
        read, memory = self.read(self.embed(letters), memory)
        return self.guess(read), memory


class Counting(echelon.Trainer):
    steps = args.steps
    epochs = 1000
    batch_size = 16
    every = args.every

    def initialize(self):
        self.model = Reader()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def dataset(self):
        return Windows()

    def train_step(self, batch):
        samples, letters = batch
        self.trace_and_kill(samples)
        guesses, _ = self.model(letters[:, :-1])
        loss = torch.nn.functional.cross_entropy(guesses.flatten(0, 1), letters[:, 1:].flatten())
        if self.checkpoint.step % 50 == 0:
            mean = self.world.reduce_mean({"loss": loss})["loss"]
            self.world.print(f"step {self.checkpoint.step:4d}  epoch {self.sampler.epoch:2d}  loss {mean:.3f}")
        return loss

    def optimize(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def trace_and_kill(self, samples):
        """Does what --trace and --kill-rank ask for."""
        step, rank = self.checkpoint.step, self.world.rank
        if args.trace:
            args.trace.mkdir(parents=True, exist_ok=True)
            with (args.trace / f"rank-{rank}").open("a") as file:
                print(step, *samples.tolist(), file=file)
        if rank == args.kill_rank and step == args.kill_at and os.environ.get("ECHELON_GENERATION", "0") == "0":
            os.kill(os.getpid(), signal.SIGKILL)

    @torch.no_grad()
    def recite(self, beginning, length):
        """Continues the text with the most likely letters."""
        text, memory = beginning, None
        letters = encode(beginning)
        for _ in range(length):
            guesses, memory = self.model.module(letters[None].to(self.world.device), memory)
            letters = guesses[0, -1:].argmax(1)
            text += LETTERS[letters.item()]
        return text

    def digest(self):
        """A digest of all bits of the weights."""
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(bytes(parameter.detach().cpu().flatten().view(torch.uint8).tolist()))
        return digest.hexdigest()[:12]


if __name__ == "__main__":
    trainer = Counting()
    trainer.train()
    trainer.world.print(trainer.recite("ninety-eight, ", 80))
    trainer.world.print(f"weights {trainer.digest()} after {trainer.checkpoint.step} steps")
