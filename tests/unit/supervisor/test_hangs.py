"""What counts as progress, and which ranks hang."""

import pytest

from echelon.supervisor.hangs import HangDetector
from echelon.wire.messages import Sample


def sample(rank=0, *, lines=0, cpu=0.0, stopped=False, step=None, committed=None):
    return Sample(rank=rank, lines=lines, cpu_seconds=cpu, stopped=stopped, step=step, committed=committed)


def watched(*looks, start=100.0):
    """A watch that was shown these samples, ten seconds apart."""
    watch = HangDetector(started=start)
    for index, samples in enumerate(looks):
        watch.observe(start + 10 * index, samples)
    return watch


def test_ranks_that_never_start_are_named_after_join_timeout():
    watch = HangDetector(started=0.0, expected=4)
    watch.observe(1.0, [sample(0), sample(2)])
    assert watch.missing_ranks_sentence(59.0, 60.0) is None
    assert watch.missing_ranks_sentence(60.0, 60.0) == "ranks 1, 3 did not start within --join-timeout (60 s)"


def test_ranks_do_not_hang_while_another_is_starting():
    watch = HangDetector(started=0.0, expected=2)
    watch.observe(1.0, [sample(0)])
    assert watch.hang_sentence(1e9, 1.0) is None


def test_hang_timeout_starts_when_the_last_rank_has_started():
    watch = HangDetector(started=0.0, expected=2)
    watch.observe(1.0, [sample(0)])
    watch.observe(100.0, [sample(0), sample(1)])
    assert watch.missing_ranks_sentence(1e9, 60.0) is None
    assert watch.hang_sentence(159.0, 60.0) is None
    assert watch.hang_sentence(160.0, 60.0) is not None


def test_a_rank_that_finished_early_is_not_missing():
    watch = HangDetector(started=0.0, expected=2)
    watch.record_exit(1.0, 1, 0)
    watch.observe(2.0, [sample(0)])
    assert watch.missing_ranks == []


def test_a_rank_that_does_not_exit_is_reported_once():
    watch = HangDetector(started=0.0, expected=4)
    watch.observe(0.0, [sample(rank) for rank in range(4)])
    for rank in range(3):
        watch.record_exit(10.0, rank, 0)
    assert watch.late_exit_warning(39.0) is None
    assert watch.late_exit_warning(40.0) == "ranks 0-2 finished; rank 3 has not exited for 30 s"
    assert watch.late_exit_warning(80.0) is None


@pytest.mark.parametrize(("hang_timeout", "seconds"), [(None, 30), (1800.0, 30), (10.0, 5)])
def test_a_late_exit_is_reported_before_the_hang_timeout(hang_timeout, seconds):
    watch = HangDetector(started=0.0, expected=2)
    watch.observe(0.0, [sample(0), sample(1)])
    watch.record_exit(10.0, 0, 0)
    assert watch.late_exit_warning(9.9 + seconds, hang_timeout) is None
    assert watch.late_exit_warning(10.0 + seconds, hang_timeout).endswith(f"has not exited for {seconds} s")


def test_a_rank_that_still_works_is_not_reported_as_late():
    watch = HangDetector(started=0.0, expected=2)
    watch.observe(0.0, [sample(0), sample(1)])
    watch.record_exit(10.0, 0, 0)
    watch.observe(35.0, [sample(1, lines=1)])
    assert watch.late_exit_warning(45.0) is None
    assert watch.late_exit_warning(65.0) is not None


def test_ranks_are_not_late_while_no_other_has_finished():
    watch = HangDetector(started=0.0, expected=2)
    watch.observe(0.0, [sample(0), sample(1)])
    watch.record_exit(1.0, 0, 1)
    assert watch.late_exit_warning(1e9) is None


def test_finished_ranks_do_not_hang():
    watch = watched([sample(0)])
    watch.record_exit(101.0, 0, 0)
    assert watch.hang_sentence(1e9, 1.0) is None


def test_ranks_that_do_nothing_hang_once_the_timeout_is_over():
    watch = watched([sample(0), sample(1)])
    assert watch.hang_sentence(159.9, 60) is None
    assert watch.hang_sentence(160.0, 60) == "no progress for 60 s: no output and no CPU time from ranks 0, 1"


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
    assert watch.active
    assert watch.hang_sentence(165.0, 60) is None
    assert watch.hang_sentence(170.0, 60) is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sample(), sample()),
        (sample(), sample(cpu=0.1)),
        (sample(step=3), sample(step=3, lines=50, cpu=10.0)),
    ],
    ids=["nothing", "an idle thread's ticks", "output without a new step"],
)
def test_idle_samples_are_not_progress(before, after):
    watch = watched([before], [after])
    assert not watch.active
    assert watch.hang_sentence(160.0, 60) is not None


def test_idle_ticks_do_not_add_up_to_progress():
    looks = [[sample(cpu=0.01 * 10 * index)] for index in range(20)]  # 1 percent of a core
    assert not watched(*looks).active


def test_one_idle_rank_is_not_a_hang_while_another_works():
    watch = watched(*[[sample(0), sample(1, lines=index)] for index in range(20)])
    assert watch.hang_sentence(295.0, 60) is None


def test_stopped_rank_hangs_even_if_other_ranks_are_busy():
    looks = [[sample(0, stopped=True), sample(1, cpu=5.0 * index)] for index in range(8)]
    assert "rank 0 stopped by a signal" in watched(*looks).hang_sentence(175.0, 60)


def test_a_rank_that_was_only_briefly_stopped_does_not_hang():
    looks = [[sample(0, stopped=index == 1), sample(1, lines=index)] for index in range(8)]
    assert watched(*looks).hang_sentence(175.0, 60) is None


def test_verdict_names_the_missing_reported_steps():
    assert "no new step from rank 0" in watched([sample(step=3)]).hang_sentence(200.0, 60)


def test_of_many_ranks_only_some_are_listed():
    watch = watched([sample(rank) for rank in range(0, 40, 2)])
    assert watch.hang_sentence(200.0, 60).endswith("ranks 0, 2, 4, 6, 8, 10, 12, 14, ...")


def test_consecutive_ranks_are_listed_as_a_span():
    assert watched([sample(rank) for rank in range(20)]).hang_sentence(200.0, 60).endswith("from ranks 0-19")


def test_finished_rank_does_not_hang():
    watch = watched([sample(0)])
    watch.record_exit(1e3, 0, 1)
    watch.record_exit(1e3, 7, 1)
    assert watch.hang_sentence(1e9, 60) is None


def test_furthest_steps_are_reported():
    watch = watched([sample(0, step=7, committed=4), sample(1, step=9)])
    assert (watch.step, watch.committed) == (9, 4)


def test_without_steps_there_are_none():
    watch = watched([sample(0)])
    assert (watch.step, watch.committed) == (None, None)


def test_unhandled_notice_is_reported_once():
    watch = watched([sample(0), sample(1)])
    watch.expect_notice_handling(110.0, 300.0)
    assert watch.notice_warning(119.0) is None
    warning = watch.notice_warning(120.0)
    assert warning.startswith("notice given, but no rank handles SIGUSR1")
    assert "unless the ranks save at SIGTERM" in warning, "the JIT checkpoint of a Trainer does"
    assert watch.notice_warning(130.0) is None


def test_one_rank_that_handles_the_notice_is_enough():
    watch = watched([sample(0), sample(1)])
    watch.expect_notice_handling(110.0, 300.0)
    watch.observe(111.0, [Sample(rank=1, lines=0, cpu_seconds=0.0, stopped=False, handles_notice=True)])
    assert watch.notice_warning(120.0) is None


def test_a_short_notice_is_checked_at_half_time():
    watch = watched([sample(0)])
    watch.expect_notice_handling(110.0, 4.0)
    assert watch.notice_warning(111.0) is None
    assert watch.notice_warning(112.0) is not None
