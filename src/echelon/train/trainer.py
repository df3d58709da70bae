"""`echelon.Trainer`: an optional base class for a training loop, built from the other parts of the library."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from echelon.errors import ConfigError
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.schedule import AUTO, SaveInterval
from echelon.train.sampler import ElasticSampler
from echelon.train.world import World, join

if TYPE_CHECKING:
    import torch


class Trainer:
    """A training loop. Implement `initialize`, `dataset` and `train_step`; use or override the rest.

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

    Every attribute of self with a state_dict is saved: schedulers, a GradScaler, a metric.
    """

    epochs: int = 1
    steps: int | None = None
    """Ends after this many steps, even in the middle of an epoch."""
    batch_size: int = 32
    """Per rank."""
    workers: int = 0
    seed: int = 0
    every: SaveInterval = AUTO
    keep: int = 3
    folder: str | None = None

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    world: World
    checkpoint: Checkpoint

    def initialize(self) -> None:
        """Sets self.model and self.optimizer. The random seed is already set, and is the same on all ranks."""
        raise _missing_method_error(self, "initialize")

    def dataset(self) -> Any:
        """Returns a dataset with a length. `loader` splits it among the ranks."""
        raise _missing_method_error(self, "dataset")

    def train_step(self, batch: Any) -> torch.Tensor | None:  # noqa: ARG002  used in subclasses
        """Returns the loss, which is passed to `optimize`; or None if this method has updated the model itself."""
        raise _missing_method_error(self, "train_step")

    def loader(self, dataset: Any) -> Iterable[Any]:
        """Yields each sample once per epoch, on any number of ranks and over any number of restarts."""
        from torch.utils.data import DataLoader

        self.sampler = ElasticSampler(dataset, seed=self.seed)
        loader: Iterable[Any] = DataLoader(
            dataset, sampler=self.sampler, batch_size=self.batch_size, num_workers=self.workers
        )
        return loader

    def save_checkpoint(self) -> None:
        """Saves an additional checkpoint. Periodic ones, one at the end and one before the time limit are automatic."""
        self.checkpoint.save()

    def load_checkpoint(self) -> bool:
        """Called before the first step. Returns False if there is no checkpoint."""
        return self.checkpoint.load()

    def optimize(self, loss: torch.Tensor) -> None:
        """Applies the gradients of a loss. Override it for gradient clipping or gradient accumulation."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        scheduler = getattr(self, "scheduler", None)
        if scheduler is not None:
            scheduler.step()

    def train(self) -> None:
        """Trains to the end, from the newest checkpoint of this run if it has one."""
        self.world = join()
        self._seed_generators(self.seed)  # the same model on all ranks
        self.initialize()
        self.model = self.world.wrap(self.model)
        self._seed_generators(self.seed + 1 + self.world.rank)  # different dropout on each rank
        loader = self.loader(self.dataset())
        self.checkpoint = Checkpoint(self.folder, every=self.every, keep=self.keep, **self._stateful_attributes())
        self.load_checkpoint()
        with self.checkpoint:
            self.model.train()
            for batch in self.checkpoint.steps(loader, epochs=self.epochs, until=self.steps):
                loss = self.train_step(self._to_device(batch))
                if loss is not None:
                    self.optimize(loss)

    def _stateful_attributes(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if _has_state(value)}

    def _seed_generators(self, seed: int) -> None:
        import torch

        random.seed(seed)
        torch.manual_seed(seed)

    def _to_device(self, batch: Any) -> Any:
        """Moves a batch to this rank's device, also inside of the tuples, lists and dicts that loaders return."""
        if hasattr(batch, "_fields"):
            return type(batch)(*map(self._to_device, batch))
        if isinstance(batch, (list, tuple)):
            return type(batch)(map(self._to_device, batch))
        if isinstance(batch, dict):
            return {key: self._to_device(value) for key, value in batch.items()}
        return batch.to(self.world.device, non_blocking=True) if hasattr(batch, "to") else batch


def _has_state(value: Any) -> bool:
    return not inspect.isclass(value) and all(hasattr(value, name) for name in ("state_dict", "load_state_dict"))


def _missing_method_error(trainer: Trainer, name: str) -> ConfigError:
    kind = type(trainer).__qualname__
    hint = f"implement {kind}.{name}; help(echelon.Trainer) has an example"
    return ConfigError(f"{kind} has no {name}", origin="echelon.Trainer", hint=hint)
