"""The training loop yields the same samples after any number of interruptions."""

import contextlib
import sys
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.loop import DataPosition, global_batch_sizes, iterate_steps
from echelon.train.progress import ProgressBar, StepClock, progress_line
from echelon.train.sampler import ElasticSampler

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402  after importorskip


class Killed(Exception):  # noqa: N818  stands for a SIGKILL
    pass


class Loop:
    """A stand-in for Checkpoint that keeps its state in a dict, and raises Killed after `steps` steps."""

    def __init__(self, parts, position, saved=None, steps=None):
        self.left = steps
        self.parts, self.position, self.step, self.saved = parts, position, 0, None
        self.bar = ProgressBar(shown=False)
        self.clock = StepClock([0])
        self.state = saved
        if saved is not None:
            self.step = saved["step"]
            position.load(saved)
            for name, part in parts.items():
                part.load_state_dict(saved[name])

    def after_step(self):
        self.step += 1
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        self.state = {"step": self.step, **self.position.state(), **parts}
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise Killed

    def resume_rng(self):
        pass


def elastic(length, batch_size, rank=0, size=1, *, drop=False, batched=False):
    sampler = ElasticSampler(length, rank=rank, world_size=size, seed=5)
    if batched:
        return DataLoader(range(length), batch_sampler=sampler.batches(batch_size)), {"sampler": sampler}
    return DataLoader(range(length), sampler=sampler, batch_size=batch_size, drop_last=drop), {"sampler": sampler}


def plain(length, batch_size):
    return DataLoader(range(length), batch_size=batch_size), {}


def run(make, stops, **limits):
    """The batches of all starts: each is killed after that many steps, and a last one runs to the end."""
    seen, saved = [], None
    for steps in (*stops, None):
        loader, parts = make()
        loop = Loop(parts, DataPosition(), saved, steps)
        with contextlib.suppress(Killed):
            for batch in iterate_steps(loop, loop.position, parts, loader, **{"epochs": None, "until": None, **limits}):
                seen.append(batch.tolist())  # noqa: PERF401  an exception may interrupt it
        saved = loop.state
    return seen


@pytest.mark.parametrize(
    "make",
    [
        lambda: elastic(23, 4),
        lambda: elastic(23, 4, drop=True),
        lambda: elastic(23, 4, batched=True),
        lambda: plain(23, 4),
    ],
    ids=["sampler", "drop_last", "batch sampler", "plain"],
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 5), max_size=6))
def test_interrupted_loop_yields_the_same_batches(make, stops):
    assert run(make, stops, epochs=3) == run(make, [], epochs=3)


def test_each_epoch_has_every_sample_in_a_new_order():
    seen = run(lambda: elastic(10, 4), [], epochs=2)
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    first, second = [*chain(*seen[:3])], [*chain(*seen[3:])]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_until_runs_as_many_epochs_as_needed():
    assert len(run(lambda: elastic(10, 4), [], until=8)) == 8
    assert len(run(lambda: elastic(10, 4), [3, 2], until=8)) == 8
    assert len(run(lambda: elastic(10, 4), [], until=8, epochs=2)) == 6
    assert len(run(lambda: plain(10, 4), [], until=8)) == 8


def test_loop_without_limits_runs_one_epoch():
    assert len(run(lambda: elastic(10, 4), [])) == 3


def test_empty_loader_is_refused():
    with pytest.raises(ConfigError, match="no batches"):
        run(lambda: plain(0, 4), [], until=5)


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 5), st.booleans())
def test_batch_counts_are_samples_of_all_ranks(length, batch_size, size, drop):
    loader, parts = elastic(length, batch_size, size=size, drop=drop)
    counts = list(global_batch_sizes(parts["sampler"], loader))
    assert len(counts) == len(loader)
    if counts:
        assert counts[-1] == length, "the epoch is over with its last batch"
        assert all(count == batch_size * size for count in counts[:-1])


def test_unsaved_elastic_sampler_is_refused():
    loader, _ = elastic(10, 4)
    with pytest.raises(ConfigError, match="is not saved"):
        list(iterate_steps(Loop({}, DataPosition()), DataPosition(), {}, loader, epochs=None, until=None))


class Hiding:
    """A wrapper around a loader or a sampler."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


@pytest.mark.parametrize(
    "make",
    [
        lambda sampler: Hiding(DataLoader(range(8), sampler=sampler)),
        lambda sampler: DataLoader(range(8), batch_sampler=Hiding(sampler.batches(2))),
    ],
    ids=["loader", "batch sampler"],
)
def test_hidden_elastic_sampler_is_refused(make):
    sampler = ElasticSampler(8, rank=0, world_size=1)
    parts = {"sampler": sampler}
    with pytest.raises(ConfigError, match="hides an ElasticSampler"):
        next(iterate_steps(Loop(parts, DataPosition()), DataPosition(), parts, make(sampler), epochs=2, until=None))


def test_epochs_end_beside_a_sampler_of_another_loader():
    position, parts = DataPosition(), {"sampler": ElasticSampler(8, rank=0, world_size=1)}
    loop = Loop(parts, position, steps=100)
    assert [*iterate_steps(loop, position, parts, range(3), epochs=2, until=None)] == [0, 1, 2, 0, 1, 2]


@pytest.fixture
def alone(monkeypatch):
    """One process, outside of a run."""
    for name in ("RANK", "WORLD_SIZE", "ECHELON_RUN_DIR", "ECHELON_NODE_DIR"):
        monkeypatch.delenv(name, raising=False)


def take(checkpoint, loader, number):
    """The batches of a loop that ends by `break` inside step `number`."""
    seen = []
    for batch in checkpoint.steps(loader, epochs=1):
        seen.append(batch.tolist())
        if len(seen) == number:
            break
    return seen


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [lambda: elastic(10, 2), lambda: plain(10, 2)], ids=["sampler", "plain"])
def test_break_counts_the_step_and_the_block_saves_it(tmp_path, make):
    whole = run(make, [])
    loader, parts = make()
    with Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        first = take(checkpoint, loader, 3)
    assert (checkpoint.step, checkpoint.saved) == (3, 3)
    loader, parts = make()
    with Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        assert checkpoint.step == 3
        assert first + take(checkpoint, loader, None) == whole
    assert checkpoint.saved == 5


@pytest.mark.usefixtures("alone")
def test_break_after_a_saved_step_saves_one_more_step(tmp_path, monkeypatch):
    saved = []
    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, **how: (saved.append(self.step), save(self, **how))[1])
    loader, parts = elastic(10, 2)
    with Checkpoint(tmp_path, every=2, **parts) as checkpoint:
        take(checkpoint, loader, 3)
    assert saved == [2, 3]


@pytest.mark.usefixtures("alone")
def test_loop_after_break_continues(tmp_path):
    whole = run(lambda: elastic(10, 2), [])
    loader, parts = elastic(10, 2)
    with Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        assert take(checkpoint, loader, 2) + take(checkpoint, loader, None) == whole
    assert (checkpoint.step, checkpoint.saved) == (5, 5)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("error", [Killed(), StopIteration(), SystemExit(3), SystemExit("no data")], ids=repr)
def test_exception_inside_a_step_saves_nothing(tmp_path, error):
    loader, parts = elastic(10, 2)
    with contextlib.suppress(type(error)), Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        for number, _ in enumerate(checkpoint.steps(loader)):
            if number == 2:
                raise error
    assert (checkpoint.step, checkpoint.saved) == (2, None)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("code", [(), (None,), (0,)])
def test_exit_with_success_counts_the_step_and_saves_it(tmp_path, code):
    loader, parts = elastic(10, 2)
    with contextlib.suppress(SystemExit), Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        for number, _ in enumerate(checkpoint.steps(loader)):
            if number == 2:
                sys.exit(*code)
    assert (checkpoint.step, checkpoint.saved) == (3, 3)


def test_progress_line():
    assert progress_line(5, None, None, 2.0) == "step 5  2.0/s"
    assert progress_line(50, 40, 100, 10.0) == "[############............] step 50/100  10.0/s, 0:00:05 left  saved 40"
    assert progress_line(0, None, 0, 0.0).startswith("[")


@pytest.mark.parametrize(
    ("batch", "before", "now", "dealt", "in_doubt"),
    [
        (5, 4, 2, False, True),
        (5, 2, 4, False, True),
        (5, 4, 4, False, False),
        (0, 4, 2, False, False),
        (5, 4, 2, True, False),
    ],
)
def test_epoch_on_other_rank_count_warns_without_sampler(batch, before, now, dealt, in_doubt):
    position = DataPosition()
    position.load({"epoch": 1, "batch": batch})
    parts = {"sampler": ElasticSampler(10, rank=0, world_size=1)} if dealt else {}
    resume_warning = position.resume_warning(parts, before, now)
    assert (resume_warning is not None) == in_doubt
    assert (
        resume_warning is None
        or f"resuming mid-epoch on {now} ranks instead of {before}: skipping 5 batches" in resume_warning
    )
