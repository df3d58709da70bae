"""Which rank is slow and why; the ranks that wait for it are never named, and healthy noise is no alarm."""

import random

import pytest

from echelon.diagnosis.pace import Pace
from echelon.diagnosis.slow import (
    CHRONIC_LOOKS,
    Change,
    Reason,
    Share,
    SlowRanks,
    slow_ranks,
    step_shares,
)

PATTERN = "1-abc"
HOSTS = {0: "n0", 1: "n0", 2: "n1", 3: "n1"}


def synchronous(own, inputs=None, *, step=32, comm=0.002, pattern=PATTERN):
    """The pace of ranks that call one collective in each step, from the time that each needs until then."""
    inputs = inputs or dict.fromkeys(own, 0.0)
    seconds = max(own.values()) + comm
    return {
        rank: Pace(
            step=step,
            steps=28,
            seconds=seconds,
            input_seconds=inputs[rank],
            arrivals=(time,),
            pattern=pattern,
        )
        for rank, time in own.items()
    }


def looks(paces, count, ranks=None):
    ranks = ranks or SlowRanks(hosts=HOSTS)
    return [verdict for _ in range(count) for verdict in ranks.look(paces)]


SLOW_INPUT = synchronous({0: 0.1, 1: 0.1, 2: 0.18, 3: 0.1}, {0: 0.001, 1: 0.002, 2: 0.08, 3: 0.0})
SLOW_CODE = synchronous({0: 0.1, 1: 0.1, 2: 0.18, 3: 0.1}, {0: 0.02, 1: 0.01, 2: 0.03, 3: 0.02})
EQUAL = synchronous(dict.fromkeys(range(4), 0.1))


@pytest.mark.parametrize(("paces", "reason"), [(SLOW_INPUT, Reason.INPUT), (SLOW_CODE, Reason.OWN_CODE)])
def test_only_the_slow_rank_is_named_with_its_reason(paces, reason):
    (rank, slowness), *others = slow_ranks(step_shares(paces)).items()
    assert (rank, slowness.reason, others) == (2, reason, [])
    assert slowness.factor == pytest.approx(1.8, abs=0.05)


def test_waiting_ranks_have_little_time_of_their_own():
    shares = step_shares(SLOW_CODE)
    assert shares[2].wait == pytest.approx(0.0)
    assert [shares[rank].wait for rank in (0, 1, 3)] == pytest.approx([0.08] * 3)


def test_sentence_names_rank_host_factor_step_and_reason():
    (verdict,) = looks(SLOW_INPUT, CHRONIC_LOOKS)
    assert verdict.sentence == "rank 2 on n1 is 1.8x slower than the median since step 5: waiting for input"
    assert (verdict.change, verdict.ranks, verdict.since_step) == (Change.CHRONIC, (2,), 5)


def test_two_slow_ranks_of_one_node_share_a_sentence():
    own = {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1, 6: 0.2, 7: 0.2}
    ranks = SlowRanks(hosts={rank: f"n{rank // 2}" for rank in own})
    (verdict,) = looks(synchronous(own), CHRONIC_LOOKS, ranks)
    assert verdict.sentence == "ranks 6, 7 on n3 are 2.0x slower than the median since step 5: in their own code"


def test_two_ranks_that_are_slow_for_different_reasons():
    paces = synchronous({0: 0.06, 1: 0.18, 2: 0.16, 3: 0.06}, {0: 0.0, 1: 0.12, 2: 0.0, 3: 0.0})
    found = {verdict.ranks: verdict.reason for verdict in looks(paces, CHRONIC_LOOKS)}
    assert found == {(1,): Reason.INPUT, (2,): Reason.OWN_CODE}


def test_slow_rank_is_reported_once_per_episode():
    assert len(looks(SLOW_INPUT, 50 * CHRONIC_LOOKS)) == 1


def test_short_slowness_is_not_reported():
    ranks = SlowRanks(hosts=HOSTS)
    for _ in range(20):
        assert looks(SLOW_CODE, CHRONIC_LOOKS - 1, ranks) == []
        assert looks(EQUAL, 1, ranks) == []


def test_end_of_slowness_is_reported_and_a_new_episode_again():
    ranks = SlowRanks(hosts=HOSTS)
    looks(SLOW_CODE, CHRONIC_LOOKS, ranks)
    assert looks(EQUAL, CHRONIC_LOOKS - 1, ranks) == []
    (ended,) = looks(EQUAL, 1, ranks)
    assert (ended.change, ended.sentence) == (Change.ENDED, "rank 2 on n1 is no longer slow")
    assert looks(EQUAL, 20, ranks) == []
    (again,) = looks(SLOW_CODE, CHRONIC_LOOKS, ranks)
    assert again.change is Change.CHRONIC


def test_a_normal_look_does_not_end_a_reported_episode():
    ranks = SlowRanks(hosts=HOSTS)
    looks(SLOW_CODE, CHRONIC_LOOKS, ranks)
    for _ in range(10):
        assert looks(EQUAL, CHRONIC_LOOKS - 1, ranks) == []
        assert looks(SLOW_CODE, 1, ranks) == []


def test_strong_slowness_that_passes_is_one_event_of_its_own():
    ranks = SlowRanks(hosts=HOSTS)
    found = []
    for step in range(100, 1000, 100):
        slow = step in (400, 500, 700)
        own = {0: 0.1, 1: 0.1, 2: 0.5 if slow else 0.1, 3: 0.1}
        found += ranks.look(synchronous(own, step=step))
    (verdict,) = found
    assert verdict.change is Change.ONCE
    assert verdict.sentence == "rank 2 on n1 was once 4.9x slower than the median, from step 373: in its own code"


@pytest.mark.parametrize("seed", range(20))
def test_healthy_noise_gives_no_verdict(seed):
    """Each rank differs by up to 15 percent in each look, and one of them is always 20 percent slower."""
    source, ranks = random.Random(seed), SlowRanks(hosts=HOSTS)
    for step in range(32, 32_000, 32):
        own = {rank: 0.1 * source.uniform(1.0, 1.15) * (1.2 if rank == 3 else 1.0) for rank in range(4)}
        assert ranks.look(synchronous(own, step=step)) == []


def test_slowness_that_moves_between_ranks_gives_no_verdict():
    ranks = SlowRanks(hosts=HOSTS)
    for step in range(32, 6_400, 32):
        slow = step // 100 % 4
        own = {rank: 0.2 if rank == slow else 0.1 for rank in range(4)}
        assert [one for one in ranks.look(synchronous(own, step=step)) if one.change is Change.CHRONIC] == []


def test_milliseconds_of_noise_in_short_steps_are_ignored():
    assert slow_ranks(step_shares(synchronous({0: 0.001, 1: 0.005, 2: 0.001}))) == {}


def test_overlapped_collectives_do_not_multiply_a_small_delay():
    """DDP calls ten collectives in the backward pass; rank 1 is 10 percent slower in each part."""
    paces = {
        rank: Pace(
            step=32,
            steps=28,
            seconds=0.23,
            input_seconds=0.0,
            arrivals=tuple(0.01 * speed * number for number in range(1, 21)),
            pattern="20-x",
        )
        for rank, speed in enumerate((1.0, 1.1, 1.0, 1.0))
    }
    assert step_shares(paces)[0].wait == pytest.approx(0.02)
    assert slow_ranks(step_shares(paces)) == {}


def test_rank_that_is_late_at_the_first_collective_is_slow():
    """DDP broadcasts buffers before the forward pass, so all ranks arrive together at the last collective."""
    late, others = (0.152, 0.180), (0.052, 0.180)
    paces = {
        rank: Pace(step=32, steps=28, seconds=0.185, input_seconds=0.0, arrivals=times, pattern="2-x")
        for rank, times in enumerate((others, late, others, others))
    }
    assert list(slow_ranks(step_shares(paces))) == [1]


def test_rank_that_passes_a_collective_early_did_not_wait():
    """Measured with gloo: in a broadcast, a rank near the source does not wait for the others."""
    paces = {
        0: Pace(step=9, steps=8, seconds=0.179, arrivals=(0.051, 0.173), pattern="2-x"),
        1: Pace(step=9, steps=8, seconds=0.179, arrivals=(0.171, 0.174), pattern="2-x"),
        2: Pace(step=9, steps=8, seconds=0.179, arrivals=(0.151, 0.153), pattern="2-x"),
    }
    waits = {rank: share.wait for rank, share in step_shares(paces).items()}
    assert waits == pytest.approx({0: 0.12, 1: 0.0, 2: 0.021})


def test_ranks_with_different_collectives_are_not_compared():
    paces = {**synchronous({0: 0.1, 1: 0.1}), **synchronous({2: 0.3, 3: 0.1}, pattern="9-y")}
    assert slow_ranks(step_shares(paces)) == {}


def test_independent_ranks_are_compared_by_their_steps():
    paces = {
        rank: Pace(step=9, steps=8, seconds=0.3 if rank == 1 else 0.1, input_seconds=0.0, arrivals=(), pattern="0-x")
        for rank in range(3)
    }
    assert list(slow_ranks(step_shares(paces))) == [1]


def test_reason_is_open_if_the_script_reads_its_input_itself():
    own = {0: 0.1, 1: 0.3}
    paces = {rank: Pace(step=9, steps=8, seconds=0.3, arrivals=(time,), pattern="1-x") for rank, time in own.items()}
    (verdict,) = looks(paces, CHRONIC_LOOKS)
    assert verdict.sentence == "rank 1 on n0 is 3.0x slower than the median since step 2: in its own code or its input"


def without_arrivals(inputs, seconds=1.0):
    return {
        rank: Pace(step=9, steps=8, seconds=seconds, input_seconds=wait, arrivals=None)
        for rank, wait in enumerate(inputs)
    }


def test_input_wait_is_stated_without_times_of_collectives():
    """As on GPUs with NCCL: how much slower the rank is remains unknown."""
    (verdict,) = looks(without_arrivals([0.01, 0.6, 0.02]), CHRONIC_LOOKS)
    assert verdict.sentence == "rank 1 on n0 waits for input in 60% of each step since step 2; the other ranks do not"


@pytest.mark.parametrize("inputs", [[0.01, 0.4, 0.01], [0.5, 0.6, 0.5], [0.0, 0.0, 0.0], [0.3, 0.9, 0.3]])
def test_common_or_moderate_input_wait_is_not_slow(inputs):
    assert slow_ranks(step_shares(without_arrivals(inputs))) == {}


def test_single_rank_is_never_slow():
    assert slow_ranks({0: Share(seconds=1.0, input=0.9, own=1.0)}) == {}
    assert slow_ranks({}) == {}
