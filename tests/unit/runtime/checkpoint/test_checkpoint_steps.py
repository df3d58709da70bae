"""The loop: after any number of stops it goes through the same samples as if there had been none."""

import contextlib
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.bar import Bar, line
from echelon.runtime.checkpoint.checkpoint import Checkpoint
from echelon.runtime.checkpoint.steps import Position, batch_counts, walk
from echelon.runtime.sampler import ElasticSampler

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402  not before it is known to be there


class Killed(Exception):  # noqa: N818  what happens to a rank
    pass


class Loop:
    """A Checkpoint that keeps its state in a dict, and is killed after so many steps."""

    def __init__(self, parts, position, saved=None, steps=None):
        self.left = steps
        self.parts, self.position, self.step, self.saved = parts, position, 0, None
        self.bar = Bar(shown=False)
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
    """All batches, over starts that each are killed after some more steps, and a last one that goes to the end."""
    seen, saved = [], None
    for steps in (*stops, None):
        loader, parts = make()
        loop = Loop(parts, Position(), saved, steps)
        with contextlib.suppress(Killed):
            for batch in walk(loop, loop.position, parts, loader, **{"epochs": None, "until": None, **limits}):
                seen.append(batch.tolist())  # noqa: PERF401  it is killed on the way
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
def test_stops_change_nothing(make, stops):
    assert run(make, stops, epochs=3) == run(make, [], epochs=3)


def test_an_epoch_has_every_sample_and_the_next_another_order():
    seen = run(lambda: elastic(10, 4), [], epochs=2)
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    first, second = [*chain(*seen[:3])], [*chain(*seen[3:])]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_until_so_many_steps_and_as_many_epochs_as_that_takes():
    assert len(run(lambda: elastic(10, 4), [], until=8)) == 8
    assert len(run(lambda: elastic(10, 4), [3, 2], until=8)) == 8
    assert len(run(lambda: elastic(10, 4), [], until=8, epochs=2)) == 6
    assert len(run(lambda: plain(10, 4), [], until=8)) == 8


def test_once_through_where_nothing_is_said():
    assert len(run(lambda: elastic(10, 4), [])) == 3


def test_an_empty_loader_does_not_loop_forever():
    with pytest.raises(ConfigError, match="no batches"):
        run(lambda: plain(0, 4), [], until=5)


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 5), st.booleans())
def test_what_is_counted_is_what_all_ranks_have_taken(length, batch_size, size, drop):
    loader, parts = elastic(length, batch_size, size=size, drop=drop)
    counts = list(batch_counts(parts["sampler"], loader))
    assert len(counts) == len(loader)
    if counts:
        assert counts[-1] == length, "the epoch is over with its last batch"
        assert all(count == batch_size * size for count in counts[:-1])


def test_a_sampler_that_is_not_saved_is_refused():
    loader, _ = elastic(10, 4)
    with pytest.raises(ConfigError, match="is not saved"):
        list(walk(Loop({}, Position()), Position(), {}, loader, epochs=None, until=None))


def test_leaving_the_loop_inside_a_step_saves_nothing_and_says_so(tmp_path, capsys, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "ECHELON_RUN_DIR", "ECHELON_NODE_DIR"):
        monkeypatch.delenv(name, raising=False)
    loader, parts = elastic(10, 2)
    with Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        for number, _ in enumerate(checkpoint.steps(loader)):
            if number == 2:
                break
    assert "left inside a step" in capsys.readouterr().err
    assert checkpoint.saved is None
    with contextlib.suppress(SystemExit), Checkpoint(tmp_path, every=None, **parts) as checkpoint:
        assert sum(1 for _ in checkpoint.steps(loader, until=2)) == 2
    assert checkpoint.saved == 2


def test_the_bar():
    assert line(5, None, None, 2.0) == "step 5  2.0/s"
    assert line(50, 40, 100, 10.0) == "[############............] step 50/100  10.0/s, 0:00:05 left  saved 40"
    assert line(0, None, 0, 0.0).startswith("[")


@pytest.mark.parametrize(
    ("batch", "before", "now", "dealt", "in_doubt"),
    [(5, 4, 2, False, True), (5, 2, 4, False, True), (5, 4, 4, False, False), (0, 4, 2, False, False),
     (5, 4, 2, True, False)],
)  # fmt: skip
def test_an_epoch_that_other_ranks_began_is_in_doubt_without_a_sampler(batch, before, now, dealt, in_doubt):
    position = Position()
    position.load({"epoch": 1, "batch": batch})
    parts = {"sampler": ElasticSampler(10, rank=0, world_size=1)} if dealt else {}
    doubt = position.doubt(parts, before, now)
    assert (doubt is not None) == in_doubt
    assert doubt is None or f"{before} ranks left the epoch after batch 5, and here are {now}" in doubt
