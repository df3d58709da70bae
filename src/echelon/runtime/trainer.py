"""`echelon.Trainer`: for those who like to fill in an outline. Everything in it is a few lines of the other parts."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.checkpoint import EVERY, Checkpoint
from echelon.runtime.sampler import ElasticSampler
from echelon.runtime.world import World, join

if TYPE_CHECKING:
    import torch


class Trainer:
    """An outline: `initialize`, `dataset` and `train_step` are yours, the rest is here to be used or overridden.

        class Spirals(echelon.Trainer):
            epochs = 10

            def initialize(self):
                self.model = make_model()
                self.optimizer = torch.optim.Adam(self.model.parameters())

            def dataset(self):
                return SpiralsDataset()

            def train_step(self, batch):
                x, y = batch
                return cross_entropy(self.model(x), y)

        Spirals().train()

    Whatever `initialize` puts on self and has a state_dict is saved: schedulers, a GradScaler, a metric.
    """

    epochs: int = 1
    steps: int | None = None
    """Ends after so many steps, in the middle of an epoch if need be."""
    batch_size: int = 32
    """Of one rank."""
    workers: int = 0
    seed: int = 0
    every: int | timedelta | None = EVERY
    keep: int = 3
    folder: str | None = None

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    world: World
    checkpoint: Checkpoint

    def initialize(self) -> None:
        """Make self.model and self.optimizer; the random seed is set, and the same on all ranks."""
        raise _missing(self, "initialize")

    def dataset(self) -> Any:
        """A dataset with a length; `loader` deals it to the ranks."""
        raise _missing(self, "dataset")

    def train_step(self, batch: Any) -> torch.Tensor | None:  # noqa: ARG002  it is for those who override this
        """The loss, of which the gradients are then taken and applied; or None, if this did all of that."""
        raise _missing(self, "train_step")

    def loader(self, dataset: Any) -> Iterable[Any]:
        """Every sample once an epoch, on any number of ranks, through any stops."""
        from torch.utils.data import DataLoader

        self.sampler = ElasticSampler(dataset, seed=self.seed)
        loader: Iterable[Any] = DataLoader(
            dataset, sampler=self.sampler, batch_size=self.batch_size, num_workers=self.workers
        )
        return loader

    def save_checkpoint(self) -> None:
        """Happens by itself every so often, at the end, and before the time limit; call it when you want one more."""
        self.checkpoint.save()

    def load_checkpoint(self) -> bool:
        """Before the first step; False where there is nothing to go on from."""
        return self.checkpoint.load()

    def optimize(self, loss: torch.Tensor) -> None:
        """What becomes of a loss. Override it for gradient clipping, or for steps that add up gradients."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        scheduler = getattr(self, "scheduler", None)
        if scheduler is not None:
            scheduler.step()

    def train(self) -> None:
        """From where the last start of this run stopped, to the end."""
        self.world = join()
        self._sow(self.seed)  # the same model everywhere
        self.initialize()
        self.model = self.world.wrap(self.model)
        self._sow(self.seed + 1 + self.world.rank)  # and other dropout on every rank
        loader = self.loader(self.dataset())
        self.checkpoint = Checkpoint(self.folder, every=self.every, keep=self.keep, **self._parts())
        self.load_checkpoint()
        with self.checkpoint:
            self.model.train()
            for batch in self.checkpoint.steps(loader, epochs=self.epochs, until=self.steps):
                loss = self.train_step(self._moved(batch))
                if loss is not None:
                    self.optimize(loss)

    def _parts(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if _has_state(value)}

    def _sow(self, seed: int) -> None:
        import torch

        random.seed(seed)
        torch.manual_seed(seed)

    def _moved(self, batch: Any) -> Any:
        """To this rank's device, in the shapes that loaders make of samples."""
        if hasattr(batch, "_fields"):
            return type(batch)(*map(self._moved, batch))
        if isinstance(batch, (list, tuple)):
            return type(batch)(map(self._moved, batch))
        if isinstance(batch, dict):
            return {key: self._moved(value) for key, value in batch.items()}
        return batch.to(self.world.device, non_blocking=True) if hasattr(batch, "to") else batch


def _has_state(value: Any) -> bool:
    return not inspect.isclass(value) and all(hasattr(value, name) for name in ("state_dict", "load_state_dict"))


def _missing(trainer: Trainer, name: str) -> ConfigError:
    kind = type(trainer).__qualname__
    hint = f"write {kind}.{name}; help(echelon.Trainer) has an example"
    return ConfigError(f"{kind} has no {name}", origin="echelon.Trainer", hint=hint)
