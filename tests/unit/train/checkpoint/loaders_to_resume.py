"""Loaders of many kinds, each with the parts that a script gives to Checkpoint. All yield 0 to 19 in batches of two."""

import pytest

from echelon.train.checkpoint.api import Checkpoint
from echelon.train.sampler import ElasticSampler

torch = pytest.importorskip("torch")
stateful = pytest.importorskip("torchdata.stateful_dataloader")
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info  # noqa: E402


class Numbers(IterableDataset):
    """A stream of 0 to 19, divided between the workers."""

    def __iter__(self):
        worker = get_worker_info()
        return iter(range(20) if worker is None else range(worker.id, 20, worker.num_workers))


class Counted(IterableDataset):
    """A stream with its position as state."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        while self.place < 20:
            self.place += 1
            yield self.place - 1
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Resumable(Sampler):
    """A user's sampler with its position as state."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        while self.place < 20:
            self.place += 1
            yield self.place - 1
        self.place = 0

    state_dict, load_state_dict = Counted.state_dict, Counted.load_state_dict


class Numbered(Dataset):
    """An iterable map-style dataset with a state that is not a position."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index

    def __iter__(self):
        return iter(range(20))

    def state_dict(self):
        return {"augmentation": 1}

    def load_state_dict(self, state):
        pass


class Filtered(IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        worker = get_worker_info()
        return iter(self.dataset) if worker is None or worker.id == 0 else iter(())


class Wrapper:
    def __init__(self, loader):
        self.inner = loader

    def __iter__(self):
        return iter(self.inner)


class Several:
    """A wrapper that holds its loaders in a container."""

    __slots__ = ("loaders",)

    def __init__(self, loaders):
        self.loaders = loaders

    def __iter__(self):
        return iter(next(iter(self.loaders.values()))[0])


def map_style(workers):
    loader = stateful.StatefulDataLoader(range(20), batch_size=2, shuffle=True, num_workers=workers)
    return loader, {"loader": loader}


def iterable(workers):
    loader = stateful.StatefulDataLoader(Numbers(), batch_size=2, num_workers=workers)
    return loader, {"loader": loader}


def stateful_dataset(workers):
    dataset = Counted()
    loader = stateful.StatefulDataLoader(dataset, batch_size=2, num_workers=workers)
    return loader, {"loader": loader, "dataset": dataset}


def wrapped(workers):
    loader, parts = map_style(workers)
    return Wrapper(Wrapper(loader)), parts


def in_a_container(workers):
    loader, parts = map_style(workers)
    return Several({"train": [loader]}), parts


def accelerated(workers):
    accelerate = pytest.importorskip("accelerate")
    config = accelerate.utils.DataLoaderConfiguration(use_stateful_dataloader=True)
    loader = accelerate.Accelerator(cpu=True, dataloader_config=config).prepare(DataLoader(range(20), batch_size=2))
    return loader, {"loader": loader}


def beside_accelerate(workers):
    """accelerate creates another loader, so the saved one never moves."""
    accelerate = pytest.importorskip("accelerate")
    loader = stateful.StatefulDataLoader(range(20), batch_size=2)
    return accelerate.Accelerator(cpu=True).prepare(DataLoader(range(20), batch_size=2)), {"loader": loader}


def not_saved(workers):
    return map_style(workers)[0], {}


def shuffled(workers):
    return DataLoader(range(20), batch_size=2, shuffle=True, num_workers=workers), {}


def shuffled_by_its_own_generator(workers):
    generator = torch.Generator().manual_seed(3)
    return DataLoader(range(20), batch_size=2, shuffle=True, generator=generator), {}


def own_sampler(workers):
    sampler = Resumable()
    return DataLoader(range(20), batch_size=2, sampler=sampler, num_workers=workers), {"sampler": sampler}


def own_sampler_of_a_saved_loader(workers):
    sampler = Resumable()
    loader = stateful.StatefulDataLoader(range(20), batch_size=2, sampler=sampler, num_workers=workers)
    return loader, {"sampler": sampler, "loader": loader}


def own_sampler_behind_accelerate(workers):
    accelerate = pytest.importorskip("accelerate")
    loader, parts = own_sampler(workers)
    return accelerate.Accelerator(cpu=True).prepare(loader), parts


def own_sampler_behind_nodes(workers):
    nodes = pytest.importorskip("torchdata.nodes")
    sampler = Resumable()
    return nodes.Loader(nodes.Prefetcher(nodes.SamplerWrapper(sampler), 4)), {"sampler": sampler}


def nodes_loader(workers):
    nodes = pytest.importorskip("torchdata.nodes")
    batches = nodes.Mapper(nodes.Batcher(nodes.IterableWrapper(range(20)), 2), torch.tensor)
    loader = nodes.Loader(nodes.Prefetcher(batches, 4))
    return loader, {"loader": loader}


def nodes_loader_not_saved(workers):
    return nodes_loader(workers)[0], {}


def elastic_sampler(workers):
    sampler = ElasticSampler(20, rank=0, world_size=1)
    return DataLoader(range(20), batch_size=2, sampler=sampler, num_workers=workers), {"sampler": sampler}


def stream(workers):
    dataset = Counted()
    return DataLoader(dataset, batch_size=2, num_workers=workers), {"dataset": dataset}


def stream_behind_accelerate(workers):
    accelerate = pytest.importorskip("accelerate")
    loader, parts = stream(workers)
    return accelerate.Accelerator(cpu=True).prepare(loader), parts


def stream_copied_by_workers(workers):
    """The states of workers' copies are not saved, so batches are skipped."""
    dataset = Counted()
    return Wrapper(DataLoader(Filtered(dataset), batch_size=2, num_workers=workers)), {"dataset": dataset}


def map_style_dataset_with_a_state(workers):
    dataset = Numbered()
    return DataLoader(dataset, batch_size=2), {"dataset": dataset}


class WithState(DataLoader):
    """A user's loader with a state, made by a function."""

    made = None

    def state_dict(self):
        return self.made()

    def load_state_dict(self, _):
        raise AssertionError("no state was saved")


def _with_state(made):
    loader = WithState(range(20), batch_size=2, shuffle=True)
    loader.made = made
    return loader, {}


def unsavable(workers):
    """Not a part, and its state has a type that a checkpoint cannot hold."""
    return _with_state(lambda: {"place": Wrapper(None)})


def without_a_state_yet(workers):
    """Not a part, and it inherits methods that are not implemented."""

    def refuse():
        raise NotImplementedError

    return _with_state(refuse)


def started(folder, make, workers, until, every=None):
    """The batches of one start, which ends after `until` steps."""
    torch.manual_seed(0)
    loader, parts = make(workers)
    seen = []
    with Checkpoint(folder, every=every, **parts) as checkpoint:
        for batch in checkpoint.steps(loader, epochs=2, until=until):
            torch.rand(1)
            seen.append(batch.tolist())
    return seen
