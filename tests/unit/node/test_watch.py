"""What counts as progress, and who hangs."""

import pytest

from echelon.node.messages import Sample
from echelon.node.watch import Watch


def sample(rank=0, *, lines=0, cpu=0.0, stopped=False, step=None, committed=None):
    return Sample(rank=rank, lines=lines, cpu_seconds=cpu, stopped=stopped, step=step, committed=committed)


def watched(*looks, start=100.0):
    """A watch that was shown these samples, ten seconds apart."""
    watch = Watch(started=start)
    for index, samples in enumerate(looks):
        watch.observe(start + 10 * index, samples)
    return watch


def test_ranks_that_never_start_hang_when_both_timeout_and_patience_are_over():
    assert Watch(started=0.0).hang(59.0, 1.0, 60.0) is None
    assert Watch(started=0.0).hang(60.0, 1.0, 60.0) == "no rank has started within 60 s"
    assert Watch(started=0.0).hang(60.0, 90.0, 60.0) is None


def test_when_all_ranks_have_left_nobody_hangs():
    watch = watched([sample(0)])
    watch.forget(0)
    assert watch.hang(1e9, 1.0) is None


def test_ranks_that_do_nothing_hang_once_the_timeout_is_over():
    watch = watched([sample(0), sample(1)])
    assert watch.hang(159.9, 60) is None
    assert watch.hang(160.0, 60) == "no progress for 60 s: no output and no CPU time from ranks 0, 1"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sample(), sample(lines=1)),
        (sample(), sample(cpu=5.0)),
        (sample(step=1), sample(step=2)),
        (sample(), sample(step=0)),
        (sample(step=5, committed=1), sample(step=5, committed=5)),
    ],
)
def test_lines_cpu_time_and_steps_are_progress(before, after):
    watch = watched([before], [after])
    assert watch.moved
    assert watch.hang(165.0, 60) is None
    assert watch.hang(170.0, 60) is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sample(), sample()),
        (sample(), sample(cpu=0.1)),
        (sample(step=3), sample(step=3, lines=50, cpu=10.0)),
    ],
    ids=["nothing", "an idle thread's ticks", "output without a new step"],
)
def test_these_are_no_progress(before, after):
    watch = watched([before], [after])
    assert not watch.moved
    assert watch.hang(160.0, 60) is not None


def test_idle_ticks_do_not_add_up_to_progress():
    looks = [[sample(cpu=0.01 * 10 * index)] for index in range(20)]  # 1 percent of a core
    assert not watched(*looks).moved


def test_one_idle_rank_is_no_hang_while_another_works():
    watch = watched(*[[sample(0), sample(1, lines=index)] for index in range(20)])
    assert watch.hang(295.0, 60) is None


def test_a_rank_stopped_by_a_signal_hangs_however_busy_the_others_are():
    looks = [[sample(0, stopped=True), sample(1, cpu=5.0 * index)] for index in range(8)]
    assert "rank 0 stopped by a signal" in watched(*looks).hang(175.0, 60)


def test_a_rank_that_was_only_briefly_stopped_does_not_hang():
    looks = [[sample(0, stopped=index == 1), sample(1, lines=index)] for index in range(8)]
    assert watched(*looks).hang(175.0, 60) is None


def test_reported_steps_are_named_as_what_is_missing():
    assert "no new step from rank 0" in watched([sample(step=3)]).hang(200.0, 60)


def test_of_many_ranks_only_some_are_listed():
    sentence = watched([sample(rank) for rank in range(20)]).hang(200.0, 60)
    assert sentence.endswith("ranks 0, 1, 2, 3, 4, 5, 6, 7, ...")


def test_a_rank_that_has_left_can_no_longer_hang():
    watch = watched([sample(0)])
    watch.forget(0)
    watch.forget(7)
    assert watch.hang(1e9, 60) is None


def test_the_furthest_steps_are_told():
    watch = watched([sample(0, step=7, committed=4), sample(1, step=9)])
    assert (watch.step, watch.committed) == (9, 4)


def test_without_steps_there_are_none():
    watch = watched([sample(0)])
    assert (watch.step, watch.committed) == (None, None)
