"""The learned hang timeout: no false alarm in healthy runs, and real hangs are found in time. The pace of all ranks."""

import itertools
import json
import math
import random

import pytest

from echelon.diagnosis.pace import Pace
from echelon.diagnosis.slow import CHRONIC_LOOKS
from echelon.run_dir import RunDir
from echelon.supervisor.hang_timeout import (
    FIRST_STEPS,
    GLOO_SECONDS,
    LEAST_SECONDS,
    MOST_SECONDS,
    NCCL_SECONDS,
    UNSEEN_SECONDS,
    SlowWatch,
    StepTimes,
    hang_timeout,
)
from echelon.supervisor.journal import Journal
from echelon.wire.messages import Heartbeat, Sample, from_wire, to_wire

MINUTE = 60.0
PULSE = 1.0


def learned(gaps, start=0.0):
    """Step times after these gaps between steps, and the time of the last step."""
    times, now = StepTimes(), start
    times.observe(now, 0)
    for step, gap in enumerate(gaps, 1):
        now += gap
        times.observe(now, step)
    return times, now


def alarms(gaps, group=NCCL_SECONDS, *, confirmed=False):
    """The gaps of a healthy run in which the hang timeout runs out. The step is looked at once per second.

    In the first steps no rank waits in a collective for long.
    """
    times, found, now, pulse = StepTimes(), [], 0.0, 0.0
    times.observe(now, 0)
    for step, gap in enumerate(gaps, 1):
        timeout = hang_timeout(times, group if times.is_armed else math.inf, confirmed=confirmed)
        if gap + PULSE >= timeout:
            found.append((step, gap, timeout))
        now += gap
        pulse = max(pulse, -(-now // PULSE) * PULSE)  # a change is seen at the next heartbeat
        times.observe(pulse, step)
    return found


def regular(count, seconds):
    return [seconds] * count


def with_periodic(base, period, seconds):
    return [seconds if number % period == period - 1 else gap for number, gap in enumerate(base)]


def uneven(count, seed, spread=1.0):
    source = random.Random(seed)
    return [min(source.lognormvariate(0.0, spread), 200.0) for _ in range(count)]


HEALTHY = {
    "1 s steps": regular(3000, 1.0),
    "10 ms steps": regular(20_000, 0.01),
    "30 s steps": regular(300, 30.0),
    "2 minute steps": regular(100, 2 * MINUTE),
    "5 minute steps": regular(50, 5 * MINUTE),
    "slow first step": [25 * MINUTE, *regular(500, 1.0)],
    "slow first steps": [10 * MINUTE] * FIRST_STEPS + regular(500, 1.0),
    "first evaluation after an hour": [*regular(3600, 1.0), 5 * MINUTE, *regular(100, 1.0)],
    "evaluation of 5 minutes": with_periodic(regular(2000, 1.0), 200, 5 * MINUTE),
    "evaluation that grows": [gap for number in range(20) for gap in (*regular(100, 1.0), (5 + 0.3 * number) * MINUTE)],
    "slow saves": with_periodic(regular(2000, 1.0), 100, 90.0),
    "slow saves and evaluation": with_periodic(with_periodic(regular(3000, 1.0), 100, 90.0), 1000, 5 * MINUTE),
    "steps that slow down": [1.0 + 0.05 * number for number in range(2000)],
    "steps that speed up": [60.0 / (1 + number) for number in range(500)],
    "two speeds": list(itertools.chain.from_iterable(regular(50, 0.5) + regular(5, 45.0) for _ in range(40))),
    **{f"uneven input {seed}": uneven(3000, seed) for seed in range(20)},
    **{f"very uneven input {seed}": uneven(3000, seed, 1.5) for seed in range(20)},
}


@pytest.mark.parametrize("group", [NCCL_SECONDS, GLOO_SECONDS], ids=["nccl", "gloo"])
@pytest.mark.parametrize("shape", HEALTHY)
def test_healthy_run_gives_no_alarm(shape, group):
    assert alarms(HEALTHY[shape], group) == []


CONFIRMED = ["1 s steps", "10 ms steps", "30 s steps", "2 minute steps", "steps that slow down"]


@pytest.mark.parametrize("shape", CONFIRMED)
def test_confirmed_timeout_gives_no_alarm_in_regular_runs(shape):
    assert alarms(HEALTHY[shape], GLOO_SECONDS, confirmed=True) == []


def test_confirmed_timeout_learns_a_silent_evaluation():
    times, _ = learned(with_periodic(regular(300, 1.0), 100, 5 * MINUTE))
    assert hang_timeout(times, NCCL_SECONDS, confirmed=True) == 7.5 * MINUTE


@pytest.mark.parametrize(
    ("gaps", "group", "confirmed", "timeout"),
    [
        (regular(100, 1.0), NCCL_SECONDS, True, LEAST_SECONDS),
        (regular(100, 1.0), NCCL_SECONDS, False, UNSEEN_SECONDS),
        (regular(100, 30.0), NCCL_SECONDS, True, 150.0),
        (regular(100, 100.0), NCCL_SECONDS, True, 7.5 * MINUTE),
        (regular(100, 100.0), GLOO_SECONDS, True, 500.0),
        (regular(100, 10 * MINUTE), GLOO_SECONDS, False, 22.5 * MINUTE),
        (regular(100, 10 * MINUTE), 100 * MINUTE, False, MOST_SECONDS),
        (regular(100, 1.0), 2 * MINUTE, False, 90.0),
        (regular(100, 1.0), 1.0, False, LEAST_SECONDS),
    ],
)
def test_timeout_is_a_multiple_of_the_slowest_step_in_bounds(gaps, group, confirmed, timeout):
    times, _ = learned(gaps)
    assert hang_timeout(times, group, confirmed=confirmed) == pytest.approx(timeout)


@pytest.mark.parametrize("shape", [name for name in HEALTHY if "first step" not in name])
def test_real_hang_is_found_before_torch_aborts(shape):
    """Except in runs that have shown longer gaps than the process group's timeout allows."""
    times, _ = learned(HEALTHY[shape])
    assert hang_timeout(times, NCCL_SECONDS) <= max(0.75 * NCCL_SECONDS, 1.5 * times.slowest)


def test_gap_that_the_run_survived_never_trips():
    times, _ = learned([*regular(50, 1.0), 45 * MINUTE, 1.0])
    assert hang_timeout(times, NCCL_SECONDS) > 45 * MINUTE


@pytest.mark.parametrize("confirmed", [False, True])
def test_first_steps_have_the_longest_timeout(confirmed):
    times, _ = learned(regular(FIRST_STEPS - 1, 1.0))
    expected = 7.5 * MINUTE if confirmed else 9 * MINUTE
    assert hang_timeout(times, NCCL_SECONDS, confirmed=confirmed) == expected


def test_first_steps_of_a_restart_have_the_longest_timeout_again():
    times, now = learned(regular(100, 1.0))
    times.restart()
    assert hang_timeout(times, NCCL_SECONDS) == 9 * MINUTE, "no step is reported yet"
    times.observe(now + 900, 50)
    assert hang_timeout(times, NCCL_SECONDS) == 9 * MINUTE
    for step in range(1, FIRST_STEPS + 1):
        times.observe(now + 900 + step, 50 + step)
    assert hang_timeout(times, NCCL_SECONDS) == UNSEEN_SECONDS


def test_slow_first_step_and_restart_are_not_learned():
    times, now = learned([20 * MINUTE, *regular(100, 1.0)])
    times.restart()
    times.observe(now + 50 * MINUTE, 50)
    times.observe(now + 70 * MINUTE, 51)
    assert times.slowest == 1.0


def test_slow_evaluation_is_not_an_ordinary_step():
    times, _ = learned(with_periodic(regular(300, 1.0), 100, 5 * MINUTE))
    assert (times.slowest_ordinary, times.slowest) == (1.0, 5 * MINUTE)


@pytest.mark.parametrize(("group", "timeout"), [(NCCL_SECONDS, 450.0), (math.inf, MOST_SECONDS)])
def test_busy_rank_has_time_until_the_group_would_abort(group, timeout):
    times, _ = learned(regular(100, 1.0))
    assert hang_timeout(times, group, busy=True) == timeout
    times, _ = learned([*regular(50, 1.0), 45 * MINUTE, 1.0])
    assert hang_timeout(times, group, busy=True) == 1.5 * 45 * MINUTE


@pytest.mark.parametrize(
    ("group", "certain", "otherwise"),
    [
        (NCCL_SECONDS, 7.5 * MINUTE, 9 * MINUTE),
        (GLOO_SECONDS, 22.5 * MINUTE, 27 * MINUTE),
        (math.inf, MOST_SECONDS, MOST_SECONDS),
        (1.0, LEAST_SECONDS, LEAST_SECONDS),
    ],
)
def test_without_steps_the_timeout_is_below_that_of_the_group(group, certain, otherwise):
    times = StepTimes()
    for now in range(5000):
        times.observe(now, None)
    assert hang_timeout(times, group, confirmed=True) == certain
    assert hang_timeout(times, group) == otherwise


def test_explicit_timeout_overrides_everything():
    times, _ = learned(regular(100, 1.0))
    assert hang_timeout(times, NCCL_SECONDS, 3600.0) == 3600.0
    assert hang_timeout(StepTimes(), NCCL_SECONDS, 2.0) == 2.0
    assert hang_timeout(times, NCCL_SECONDS, 0.0) is None


def test_same_step_again_does_not_end_a_gap():
    times, now = learned(regular(100, 1.0))
    for second in range(1, 50):
        times.observe(now + second, 100)
    times.observe(now + 50, 101)
    assert times.slowest == 50.0


def test_memory_of_step_times_is_bounded():
    times, _ = learned(regular(10_000, 0.5))
    assert len(times._gaps) == 500


OWN = {0: 0.1, 1: 0.1, 2: 0.3}


def sample(rank, pace=True):
    arrivals = (OWN[rank],)
    found = Pace(step=40, steps=28, seconds=0.3, input_seconds=0.0, arrivals=arrivals, pattern="1-x") if pace else None
    return Sample(rank=rank, lines=0, cpu_seconds=0.0, stopped=False, step=40, pace=found)


def test_look_needs_a_new_pace_of_every_rank():
    watch, found = SlowWatch(3), []
    for _ in range(CHRONIC_LOOKS):
        watch.observe("n0", [sample(0), sample(1)])
        assert watch.changes(OWN) == []
        watch.observe("n1", [sample(2, pace=False)])
        assert watch.changes(OWN) == []
        watch.observe("n1", [sample(2)])
        found += watch.changes(OWN)
    assert [verdict.sentence for verdict in found] == [
        "rank 2 on n1 is 3.0x slower than the median since step 13: in its own code"
    ]


def test_ranks_are_not_slow_after_the_first_exit():
    watch = SlowWatch(3)
    for _ in range(2 * CHRONIC_LOOKS):
        watch.observe("n0", map(sample, OWN))
        assert watch.changes([0, 1]) == []


def test_pace_is_unchanged_by_the_wire():
    heartbeat = Heartbeat(generation=0, samples=(sample(0), sample(1, pace=False)))
    assert from_wire(json.loads(json.dumps(to_wire(heartbeat)))) == heartbeat


def test_slow_rank_is_an_event_a_warning_and_a_remark(tmp_path, capsys):
    (tmp_path / "attempt-0").mkdir()
    journal, watch = Journal(RunDir(tmp_path), 0), SlowWatch(3)
    for _ in range(CHRONIC_LOOKS):
        watch.observe("n1", map(sample, OWN))
        for verdict in watch.changes(OWN):
            journal.slow(verdict)
    (event,) = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    text = "rank 2 on n1 is 3.0x slower than the median since step 13: in its own code"
    assert (event["kind"], event["change"], event["ranks"], event["text"]) == ("slow", "chronic", [2], text)
    assert capsys.readouterr().err == f"warning: {text}\n"
