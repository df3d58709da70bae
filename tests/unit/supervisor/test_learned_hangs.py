"""The learned hang timeout: which silences of a run are a hang without --hang-timeout."""

from dataclasses import replace

import pytest

from echelon.supervisor.hang_timeout import GLOO_SECONDS, NCCL_SECONDS, StepTimes
from echelon.supervisor.hangs import HangDetector
from echelon.wire.messages import Sample

MINUTE = 60.0
IDLE = {"cpu": 0.0, "lines": 0}
BUSY = {"cpu": 0.5, "lines": 0}
PRINTING = {"cpu": 0.0, "lines": 1}


class Training:
    """Two ranks that are sampled each second, and report a step per second unless a method says otherwise."""

    def __init__(self, steps=50, group=GLOO_SECONDS):
        self.now, self.group = 1000.0, group
        self.samples = {rank: Sample(rank=rank, lines=0, cpu_seconds=0.0, stopped=False) for rank in range(2)}
        self.times = StepTimes()
        self.detector = HangDetector(started=self.now, expected=2, times=self.times)
        self.train(steps)

    def train(self, steps, seconds=1):
        for _ in range(steps):
            self.silent(seconds - 1)
            for rank, one in self.samples.items():
                self.samples[rank] = replace(one, step=(one.step or 0) + 1, waits_in_collective=False)
            self.sample(BUSY, BUSY)

    def sample(self, *activity):
        self.now += 1
        for (rank, one), uses in zip(self.samples.items(), activity, strict=True):
            self.samples[rank] = replace(
                one, cpu_seconds=one.cpu_seconds + uses["cpu"], lines=one.lines + uses["lines"]
            )
        self.detector.observe(self.now, self.samples.values())

    def set(self, *ranks, **changes):
        for rank in ranks:
            self.samples[rank] = replace(self.samples[rank], **changes)

    def silent(self, seconds, *activity):
        """The hang that is found within so many seconds, and when."""
        began = self.now
        while self.now < began + seconds:
            self.sample(*(activity or (IDLE, IDLE)))
            hang = self.detector.find_hang(self.now, None, self.group)
            if hang is not None:
                return self.now - began, hang
        return None


def test_ranks_that_all_wait_in_collectives_hang_after_a_minute():
    training = Training()
    training.set(0, 1, waits_in_collective=True)
    seconds, hang = training.silent(1000)
    assert seconds == 60
    assert hang.sentence == (
        "no progress for 60 s (learned from steps of 1 s; --hang-timeout sets it): no new step from ranks 0, 1"
    )
    assert hang.idle_seconds == 60


def test_silent_evaluation_of_five_minutes_is_not_a_hang():
    """Rank 0 uses no CPU time, and rank 1 waits for it."""
    training = Training()
    training.set(1, waits_in_collective=True)
    assert training.silent(5 * MINUTE) is None
    training.train(20)
    assert training.silent(5 * MINUTE) is None


def test_silent_rank_hangs_after_six_minutes():
    training = Training()
    training.set(1, waits_in_collective=True)
    assert training.silent(1000)[0] == 6 * MINUTE


@pytest.mark.parametrize("activity", [BUSY, PRINTING])
def test_rank_that_works_has_thirty_minutes(activity):
    assert Training().silent(5000, activity, IDLE)[0] == 30 * MINUTE


def test_working_rank_is_stopped_before_the_group_aborts():
    training = Training(group=NCCL_SECONDS)
    training.set(1, waits_in_collective=True)
    assert training.silent(5000, BUSY, IDLE)[0] == 7.5 * MINUTE


def test_cpu_time_of_waiting_ranks_is_not_work():
    """NCCL polls while it waits."""
    training = Training(group=NCCL_SECONDS)
    training.set(1, waits_in_collective=True)
    assert training.silent(5000, IDLE, BUSY)[0] == 6 * MINUTE


def test_group_timeout_of_the_script_counts():
    training = Training(group=GLOO_SECONDS)
    training.set(0, 1, group_timeout=4 * MINUTE)
    training.set(1, waits_in_collective=True)
    assert training.silent(5000, BUSY, IDLE)[0] == 3 * MINUTE


def test_occasional_work_is_not_silence():
    training = Training()
    for _ in range(5):
        assert training.silent(5 * MINUTE) is None
        training.sample(BUSY, IDLE)
        training.sample(BUSY, IDLE)


def test_rank_that_waits_on_a_disk_works():
    training = Training()
    training.set(0, waits_on_disk=True)
    training.set(1, waits_in_collective=True)
    assert training.silent(20 * MINUTE) is None


def test_saved_step_is_progress():
    training = Training()
    assert training.silent(5 * MINUTE) is None
    training.set(0, committed=3)
    assert training.silent(5 * MINUTE) is None


def test_collective_that_ends_is_not_a_hang():
    training = Training()
    for _ in range(20):
        training.set(0, 1, waits_in_collective=True)
        assert training.silent(50) is None
        training.train(1)


def test_slow_steps_have_a_longer_timeout():
    training = Training(0)
    training.train(20, seconds=30)
    training.set(0, 1, waits_in_collective=True)
    assert training.silent(1000)[0] == pytest.approx(150, abs=5)


def test_first_steps_may_take_half_an_hour():
    training = Training(2)
    assert training.silent(29 * MINUTE) is None
    assert training.silent(2 * MINUTE) is not None


def test_script_without_steps_has_half_an_hour_of_silence():
    training = Training(0)
    training.sample(BUSY, BUSY)
    seconds, hang = training.silent(5000)
    assert seconds == pytest.approx(30 * MINUTE, abs=5)
    assert hang.sentence == "no progress for 1800 s: no output and no CPU time from ranks 0, 1"


def waits_without_steps(ranks, *activity, group=NCCL_SECONDS, seconds=5000, steps=0):
    """The hang that is found while these ranks wait in one collective from now on."""
    training = Training(steps, group=group)
    training.sample(BUSY, BUSY)
    for waited in range(seconds):
        training.set(*ranks, waits_in_collective=True, collective_seconds=float(waited), group_timeout=group)
        found = training.silent(1, *(activity or (IDLE, IDLE)))
        if found is not None:
            return waited, found[1]
    return None


@pytest.mark.parametrize("steps", [0, 2])
def test_early_hang_of_all_ranks_comes_before_torch_aborts(steps):
    seconds, hang = waits_without_steps((0, 1), steps=steps)
    assert seconds == 7.5 * MINUTE
    assert hang.sentence == "no progress for 450 s (torch ends ranks that wait for 600 s): ranks 0, 1 in a collective"
    assert hang.idle_seconds == 450


def test_cpu_time_of_ranks_that_all_wait_delays_the_early_hang():
    assert waits_without_steps((0, 1), BUSY, BUSY)[0] == 9 * MINUTE


@pytest.mark.parametrize(("group", "minutes"), [(NCCL_SECONDS, 9), (GLOO_SECONDS, 27)])
def test_rank_without_steps_that_others_wait_for_has_longer(group, minutes):
    assert waits_without_steps((1,), group=group)[0] == minutes * MINUTE


@pytest.mark.parametrize("activity", [BUSY, PRINTING])
def test_rank_without_steps_that_works_is_not_interrupted(activity):
    assert waits_without_steps((1,), activity, IDLE, group=GLOO_SECONDS) is None


def test_long_silent_evaluation_without_steps_is_no_hang():
    assert waits_without_steps((1,), group=GLOO_SECONDS, seconds=26 * 60) is None


def test_short_wait_after_a_long_silence_is_no_early_hang():
    training = Training(0, group=NCCL_SECONDS)
    training.sample(BUSY, BUSY)
    assert training.silent(20 * MINUTE) is None
    training.set(0, 1, waits_in_collective=True, collective_seconds=30.0)
    assert training.silent(30) is None


def test_time_of_a_suspension_is_no_wait():
    training = Training(0, group=NCCL_SECONDS)
    training.now += 20 * MINUTE
    training.detector.restart_timeouts(training.now)
    training.set(0, 1, waits_in_collective=True, collective_seconds=20 * MINUTE)
    assert training.silent(7 * MINUTE) is None


def test_stopped_rank_is_named_even_if_the_other_works():
    training = Training()
    training.set(1, stopped=True)
    seconds, hang = training.silent(5000, BUSY, IDLE)
    assert seconds == pytest.approx(6 * MINUTE, abs=2)
    assert "rank 1 stopped by a signal" in hang.sentence
    assert "learned from steps of 1 s" in hang.sentence


def test_after_the_notice_nothing_is_learned():
    training = Training()
    training.detector.expect_notice_handling(training.now, 60.0)
    training.set(0, 1, waits_in_collective=True)
    assert training.silent(5000) is None


def test_timeouts_start_again_after_the_supervisor_was_stopped():
    training = Training()
    training.set(0, 1, waits_in_collective=True)
    assert training.silent(50) is None
    training.now += 5000
    training.detector.restart_timeouts(training.now)
    assert training.silent(50) is None


def test_explicit_timeout_overrides_and_zero_disables():
    training = Training()
    training.set(0, 1, waits_in_collective=True)
    training.now += 20
    hang = training.detector.find_hang(training.now, 20.0, GLOO_SECONDS)
    assert (hang.sentence, hang.idle_seconds) == ("no progress for 20 s: no new step from ranks 0, 1", 20.0)
    assert training.detector.find_hang(training.now, 21.0, GLOO_SECONDS) is None
    assert training.detector.find_hang(training.now + 1e6, 0.0, GLOO_SECONDS) is None


def test_steps_of_earlier_generations_are_remembered():
    training = Training()
    training.times.restart()
    training.detector = HangDetector(started=training.now, expected=2, times=training.times)
    assert training.times.slowest == 1.0
    training.train(2)
    assert training.silent(10 * MINUTE) is None, "the first steps of a generation are slow"
