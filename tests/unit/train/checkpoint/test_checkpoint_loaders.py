"""A loader is resumed once: by its own state if that is saved, otherwise by skipping batches."""

import itertools
from dataclasses import replace

import pytest
from loaders_to_resume import (
    Resumable,
    Wrapper,
    accelerated,
    beside_accelerate,
    elastic_sampler,
    in_a_container,
    iterable,
    map_style,
    map_style_dataset_with_a_state,
    nodes_loader,
    nodes_loader_not_saved,
    not_saved,
    own_sampler,
    own_sampler_behind_accelerate,
    own_sampler_behind_nodes,
    own_sampler_of_a_saved_loader,
    shuffled,
    shuffled_by_its_own_generator,
    started,
    stateful_dataset,
    stream,
    stream_behind_accelerate,
    stream_copied_by_workers,
    unsavable,
    without_a_state_yet,
    wrapped,
)

from echelon.errors import ConfigError
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.loaders import find_position_holder, is_loader
from echelon.train.sampler import ElasticSampler

torch = pytest.importorskip("torch")
stateful = pytest.importorskip("torchdata.stateful_dataloader")
from torch.utils.data import DataLoader  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("alone"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11 with torch 2.13
]


@pytest.mark.parametrize(
    ("make", "workers"),
    [
        (map_style, 0),
        (map_style, 2),
        (iterable, 0),
        (iterable, 2),
        (stateful_dataset, 0),
        (wrapped, 0),
        (accelerated, 0),
        (beside_accelerate, 0),
        (not_saved, 0),
        (shuffled, 0),
        (shuffled, 2),
        (shuffled_by_its_own_generator, 0),
        (in_a_container, 0),
        (nodes_loader, 0),
        (nodes_loader_not_saved, 0),
        (own_sampler, 0),
        (own_sampler_of_a_saved_loader, 2),
        (elastic_sampler, 2),
        (stream, 0),
        (stream_copied_by_workers, 0),
        (stream_copied_by_workers, 2),
        (map_style_dataset_with_a_state, 0),
    ],
)
def test_resumed_loader_yields_every_batch_once(tmp_path, make, workers):
    whole = started(tmp_path / "whole", make, workers, None)
    assert len(whole) == 20
    pieces = [started(tmp_path / "pieces", make, workers, until) for until in (3, 7, 10, 14, None)]
    assert [*itertools.chain(*pieces)] == whole


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (unsavable, "(state['place'] is of type loaders_to_resume.Wrapper, which a checkpoint cannot hold)"),
        (without_a_state_yet, "(NotImplementedError())"),
    ],
)
def test_unsavable_state_of_adopted_loader_is_left_out(tmp_path, capsys, make, reason):
    whole = started(tmp_path / "whole", shuffled, 0, None)
    first = started(tmp_path / "pieces", make, 0, 7, every=1)
    remark = f"the state of the WithState cannot be saved; resuming skips the batches that are done {reason}"
    assert capsys.readouterr().err.count(remark) == 1
    assert first + started(tmp_path / "pieces", make, 0, None) == whole


@pytest.mark.parametrize(
    ("make", "workers", "why"),
    [
        (own_sampler, 2, "a DataLoader with num_workers=2 draws batches in advance"),
        (own_sampler_behind_accelerate, 0, "accelerate's loader draws one batch in advance"),
        (own_sampler_behind_nodes, 0, "torchdata's Loader may draw batches in advance"),
        (stream_behind_accelerate, 0, "accelerate's loader draws one batch in advance"),
    ],
)
def test_part_that_is_read_ahead_is_refused_as_position(make, workers, why):
    loader, parts = make(workers)
    with pytest.raises(ConfigError, match=f"the state of '{next(iter(parts))}' cannot be the position") as refusal:
        find_position_holder(Wrapper(loader), parts)
    assert refusal.value.why.startswith(why)
    assert "StatefulDataLoader" in refusal.value.hint


def one_of(ranks):
    """Makes the loader of the first of `ranks` ranks. All ranks together take the same samples in each step."""

    def make(workers):
        loader = stateful.StatefulDataLoader(range(0, 20, ranks), batch_size=2 // ranks, num_workers=workers)
        return loader, {"loader": loader}

    return make


@pytest.mark.parametrize("rank", [0, 1])
def test_loader_state_is_not_used_by_another_world_size(tmp_path, capsys, rank):
    started(tmp_path, one_of(1), 0, 3)
    loader, parts = one_of(2)(0)
    checkpoint = Checkpoint(tmp_path, every=None, **parts)
    alone = checkpoint._group
    checkpoint._group = replace(alone, rank=rank, size=2)
    checkpoint.load()
    checkpoint._group = alone
    said = "resuming mid-epoch on 2 ranks instead of 1: skipping 3 batches per rank"
    assert (said in capsys.readouterr().err) is (rank == 0)
    assert next(checkpoint.steps(loader)).tolist() == [6], "skipped, and not restored"
    checkpoint.close()


def test_loader_with_elastic_sampler_is_refused_as_a_part(tmp_path):
    loader = stateful.StatefulDataLoader(range(20), sampler=ElasticSampler(20, rank=0, world_size=1))
    with pytest.raises(ConfigError, match="'loader' reads from an ElasticSampler"):
        Checkpoint(tmp_path, loader=loader, sampler=loader.sampler)


def test_plain_loader_behind_accelerate_is_refused_as_a_part(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    loader = accelerate.Accelerator(cpu=True).prepare(DataLoader(range(20)))
    with pytest.raises(ConfigError, match="wraps a loader that has no state_dict"):
        Checkpoint(tmp_path, loader=loader)


def test_iterator_that_may_hide_a_saved_loader_is_refused(tmp_path):
    loader, parts = map_style(0)
    with pytest.raises(ConfigError, match=r"steps\(\) was given a map, and the loader 'loader' is saved"):
        find_position_holder(map(abs, loader), parts)
    assert find_position_holder(range(5), parts) is None, "a range hides nothing"


def test_models_optimizers_and_samplers_are_not_loaders():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert not is_loader(model)
    assert not is_loader(torch.optim.SGD(model.parameters()))
    assert not is_loader(Resumable())
    assert not is_loader(ElasticSampler(3, rank=0, world_size=1))
    assert is_loader(map_style(0)[0])
