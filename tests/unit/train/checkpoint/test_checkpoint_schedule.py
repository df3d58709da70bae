"""The schedule of saves, and the agreement of the ranks on it."""

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.train.checkpoint.schedule import SaveSchedule, auto_interval_seconds
from echelon.train.checkpoint.step_consensus import MAX_STEPS_PER_ROUND, RankStatus, StepConsensus, steps_per_round


def test_save_is_due_every_so_many_steps():
    schedule = SaveSchedule(10, 0.0)
    schedule.begin(13, 0.0)
    assert [step for step in range(14, 22) if schedule.is_due(step)] == [20, 21]
    assert [step for step in range(14, 22) if schedule.is_first_due(step)] == [20]
    assert (schedule.next_step(13), schedule.next_step(20)) == (20, float("inf"))
    schedule.save_started(20, 0.0, 3)
    assert not schedule.is_due(21)
    assert schedule.is_due(30)


def test_timed_save_is_due_after_ranks_agree():
    schedule = SaveSchedule(timedelta(seconds=60), 100.0)
    assert not schedule.is_due_by_clock(159.9)
    assert schedule.is_due_by_clock(160.0)
    assert not schedule.is_due(5), "this rank's clock alone decides nothing"
    schedule.apply_status(RankStatus(due=True))
    assert schedule.is_due(5)
    schedule.save_started(5, 161.0, 1)
    assert not schedule.is_due(6)
    schedule.apply_status(RankStatus(due=True, round=0))
    assert not schedule.is_due(6), "said before the save"


def test_status_from_before_a_save_is_ignored():
    schedule = SaveSchedule(10, 0.0)
    assert schedule.free
    schedule.save_started(10, 0.0, 5)
    schedule.apply_status(RankStatus(busy=False, round=4))
    assert not schedule.free
    schedule.apply_status(RankStatus(busy=True, round=5))
    assert not schedule.free
    schedule.apply_status(RankStatus(busy=False, round=6))
    assert schedule.free


@pytest.mark.parametrize(
    ("step_seconds", "saved_at"), [(1.0, 30.0), (10.0, 30.0), (14.0, 42.0), (20.0, 40.0), (25.0, 50.0), (29.0, 58.0)]
)
def test_first_automatic_save_comes_within_a_minute(step_seconds, saved_at):
    """There is a round at each step, and each round gets the status of the previous one."""
    schedule = SaveSchedule("auto", 0.0)
    times = itertools.count(step_seconds, step_seconds)
    said = next(now for now in times if schedule.is_due_by_clock(now))
    assert said + step_seconds == saved_at


def test_only_first_auto_save_counts_the_next_round():
    schedule = SaveSchedule("auto", 100.0)
    schedule.save_started(7, 130.0, 1)
    schedule.save_took(waited=3.0, written=4.0)
    assert not schedule.is_due_by_clock(130.0 + 149.0)
    assert schedule.is_due_by_clock(130.0 + 150.0)


@pytest.mark.parametrize(
    ("waited", "written", "seconds"), [(0.01, 0.5, 60.0), (2.0, 3.0, 100.0), (1.0, 30.0, 300.0), (60.0, 60.0, 3000.0)]
)
def test_interval_follows_the_cost_of_a_save(waited, written, seconds):
    assert auto_interval_seconds(waited, written) == pytest.approx(seconds)


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_training_waits_at_most_two_percent_of_the_time(waited, written):
    assert waited <= 0.02 * auto_interval_seconds(waited, written) * (1 + 1e-9)


@pytest.mark.parametrize(("every", "due"), [(timedelta(seconds=5), True), (10, False), (None, False)])
def test_explicit_interval_does_not_adapt(every, due):
    schedule = SaveSchedule(every, 0.0)
    schedule.save_took(waited=3.0, written=4.0)
    assert schedule.is_due_by_clock(5.0) == due


def test_interval_none_is_never_due():
    schedule = SaveSchedule(None, 0.0)
    schedule.apply_status(RankStatus(round=9))
    assert not any(schedule.is_due(step) for step in range(1000))
    assert not schedule.is_due_by_clock(1e12)


@pytest.mark.parametrize("every", [0, -1, timedelta(0), timedelta(-1), True, 2.5, "10m"])
def test_invalid_interval_is_refused(every):
    with pytest.raises(ConfigError):
        SaveSchedule(every, 0.0)


@given(st.floats())
def test_steps_between_rounds_are_bounded(seconds):
    assert 1 <= steps_per_round(seconds) <= MAX_STEPS_PER_ROUND


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, 64), (0.01, 50), (0.5, 1), (10.0, 1), (1e-9, 64), (0.0, 1)])
def test_steps_between_rounds_follow_step_duration(seconds, steps):
    assert steps_per_round(seconds) == steps


def test_single_rank_sees_stop_without_round_every_step():
    pytest.importorskip("torch")
    agreement = StepConsensus(None, alone=True)
    said = [step for step in range(1, 500) if after_step(agreement, step, RankStatus(stop=True)) is not None]
    assert said[0] == 2
    assert len(said) < 100


def after_step(agreement, step, word):
    return agreement.exchange(step, word) if step >= agreement.next_step else None


def rounds_of(agreement, monkeypatch, durations):
    """The steps with a round, and their times, for steps of these durations by a fake clock."""
    now = [100.0]
    monkeypatch.setattr("echelon.train.checkpoint.step_consensus.time.perf_counter", lambda: now[0])
    for step, seconds in enumerate(durations, start=1):
        now[0] += seconds
        if after_step(agreement, step, RankStatus()) is not None:
            yield step, now[0]


def test_distance_between_rounds_doubles_up_to_the_limit(monkeypatch):
    pytest.importorskip("torch")
    steps = [step for step, _ in rounds_of(StepConsensus(None, alone=True), monkeypatch, [0.0001] * 400)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert gaps[:7] == [1, 2, 4, 8, 16, 32, 64]
    assert set(gaps[7:]) == {64}


@pytest.mark.parametrize("fast", [3, 100, 5000])
def test_status_arrives_soon_after_steps_become_slow(monkeypatch, fast):
    pytest.importorskip("torch")
    rounds = rounds_of(StepConsensus(None, alone=True), monkeypatch, [0.0001] * fast + [1.0] * 300)
    slow = [step for step, _ in rounds if step > fast]
    assert slow[1] - fast <= 2 * min(MAX_STEPS_PER_ROUND, fast), "said in the first, heard in the second"
    assert {later - earlier for earlier, later in itertools.pairwise(slow[3:])} == {1}


def test_rounds_can_restart_at_an_earlier_step():
    pytest.importorskip("torch")
    agreement = StepConsensus(None, alone=True)
    for step in range(1, 1000):
        after_step(agreement, step, RankStatus())
    agreement.begin(7)
    assert next(step for step in range(8, 12) if after_step(agreement, step, RankStatus()) is not None) == 8


class Later:
    def wait(self):
        pass


class Group:
    """A rank's process group, with an all_reduce that completes when the last of three ranks calls it."""

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


def test_all_ranks_get_the_same_status_at_the_same_step():
    """The ranks' steps take different times, and the ranks share only the result of the all_reduce."""
    pytest.importorskip("torch")
    thrown: dict[int, list] = {}
    ranks = [StepConsensus(Group(thrown), alone=False) for _ in range(3)]
    heard = [[], [], []]
    for step in range(1, 5000):
        for rank, agreement in enumerate(ranks):
            stop = step > 1000 and rank == 2
            joint = after_step(agreement, step, RankStatus(stop=stop))
            if joint is not None:
                heard[rank].append((step, joint))
    assert heard[0] == heard[1] == heard[2]
    assert any(joint.stop for _, joint in heard[0])
