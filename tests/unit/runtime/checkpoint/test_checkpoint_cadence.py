"""When to save, on every rank alike."""

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.agreement import MOST_STEPS, Agreement, Word, steps_between
from echelon.runtime.checkpoint.cadence import Cadence


def test_by_steps():
    cadence = Cadence(10, 0.0)
    cadence.begin(13, 0.0)
    assert [step for step in range(14, 22) if cadence.is_due(step)] == [20, 21]
    assert [step for step in range(14, 22) if cadence.is_first_due(step)] == [20]
    assert (cadence.next_step(13), cadence.next_step(20)) == (20, float("inf"))
    cadence.started(20, 0.0, 3)
    assert not cadence.is_due(21)
    assert cadence.is_due(30)


def test_by_the_clock_once_it_is_agreed():
    cadence = Cadence(timedelta(seconds=60), 100.0)
    assert not cadence.clock_says(159.9)
    assert cadence.clock_says(160.0)
    assert not cadence.is_due(5), "this rank's clock alone decides nothing"
    cadence.heard(Word(due=True))
    assert cadence.is_due(5)
    cadence.started(5, 161.0, 1)
    assert not cadence.is_due(6)
    cadence.heard(Word(due=True, round=0))
    assert not cadence.is_due(6), "said before the save"


def test_what_was_said_before_a_save_began_is_no_news_of_it():
    cadence = Cadence(10, 0.0)
    assert cadence.free
    cadence.started(10, 0.0, 5)
    cadence.heard(Word(busy=False, round=4))
    assert not cadence.free
    cadence.heard(Word(busy=True, round=5))
    assert not cadence.free
    cadence.heard(Word(busy=False, round=6))
    assert cadence.free


def test_never():
    cadence = Cadence(None, 0.0)
    cadence.heard(Word(round=9))
    assert not any(cadence.is_due(step) for step in range(1000))
    assert not cadence.clock_says(1e12)


@pytest.mark.parametrize("every", [0, -1, timedelta(0), timedelta(-1), True, 2.5, "10m"])
def test_what_makes_no_sense_is_refused(every):
    with pytest.raises(ConfigError):
        Cadence(every, 0.0)


@given(st.floats())
def test_rounds_are_some_steps_apart(seconds):
    assert 1 <= steps_between(seconds) <= MOST_STEPS


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, 64), (0.01, 50), (0.5, 1), (10.0, 1), (1e-9, 64), (0.0, 1)])
def test_rounds_are_some_milliseconds_apart(seconds, steps):
    assert steps_between(seconds) == steps


def test_alone_the_word_is_heard_soon_and_not_at_every_step():
    pytest.importorskip("torch")
    agreement = Agreement(None, alone=True)
    said = [step for step in range(1, 500) if after_step(agreement, step, Word(stop=True)) is not None]
    assert said[0] == 2
    assert len(said) < 100


def after_step(agreement, step, word):
    return agreement.round(step, word) if step >= agreement.next_step else None


def rounds_of(agreement, monkeypatch, durations):
    """Steps at which there is a round, where steps take so long by a clock of our own."""
    now = [100.0]
    monkeypatch.setattr("echelon.runtime.checkpoint.agreement.time.perf_counter", lambda: now[0])
    for step, seconds in enumerate(durations, start=1):
        now[0] += seconds
        if after_step(agreement, step, Word()) is not None:
            yield step, now[0]


def test_rounds_get_rarer_by_doubling(monkeypatch):
    pytest.importorskip("torch")
    steps = [step for step, _ in rounds_of(Agreement(None, alone=True), monkeypatch, [0.0001] * 400)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert gaps[:7] == [1, 2, 4, 8, 16, 32, 64]
    assert set(gaps[7:]) == {64}


@pytest.mark.parametrize("fast", [3, 100, 5000])
def test_a_word_is_heard_soon_though_steps_were_fast_and_became_slow(monkeypatch, fast):
    pytest.importorskip("torch")
    rounds = rounds_of(Agreement(None, alone=True), monkeypatch, [0.0001] * fast + [1.0] * 300)
    slow = [step for step, _ in rounds if step > fast]
    assert slow[1] - fast <= 2 * min(MOST_STEPS, fast), "said in the first, heard in the second"
    assert {later - earlier for earlier, later in itertools.pairwise(slow[3:])} == {1}


def test_counting_may_begin_anew_at_an_earlier_step():
    pytest.importorskip("torch")
    agreement = Agreement(None, alone=True)
    for step in range(1, 1000):
        after_step(agreement, step, Word())
    agreement.begin(7)
    assert next(step for step in range(8, 12) if after_step(agreement, step, Word()) is not None) == 8


class Later:
    def wait(self):
        pass


class Group:
    """A rank's process group, with an all_reduce that is done when the last of three ranks comes to it."""

    def __init__(self, thrown):
        self.thrown = thrown
        self.count = 0

    def allreduce(self, tensors, _options):
        together = self.thrown.setdefault(self.count, [])
        self.count += 1
        together.extend(tensors)
        if len(together) == 3:
            largest = [max(numbers) for numbers in zip(*(tensor.tolist() for tensor in together), strict=True)]
            for tensor in together:
                tensor.copy_(tensor.new_tensor(largest))
        return Later()


def test_all_ranks_hear_the_same_at_the_same_step():
    """Ranks whose steps take different times, with an all_reduce of which each knows only the result."""
    pytest.importorskip("torch")
    thrown: dict[int, list] = {}
    ranks = [Agreement(Group(thrown), alone=False) for _ in range(3)]
    heard = [[], [], []]
    for step in range(1, 5000):
        for rank, agreement in enumerate(ranks):
            stop = step > 1000 and rank == 2
            joint = after_step(agreement, step, Word(stop=stop))
            if joint is not None:
                heard[rank].append((step, joint))
    assert heard[0] == heard[1] == heard[2]
    assert any(joint.stop for _, joint in heard[0])
