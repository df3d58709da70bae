"""Notice and end of an attempt. Each event is yielded once."""

from datetime import timedelta

import pytest

from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.supervisor.clock import Clock
from echelon.supervisor.state import NoticeDue, TimeLimitReached


def clock(limit, notice=60, began=1000.0):
    return Clock.for_job(
        Job(
            name="x",
            script=Script(kind=ScriptKind.FILE, target="x.py"),
            cwd="/",
            python="python",
            scheduler="local",
            resources=Resources(time_limit=None if limit is None else timedelta(seconds=limit)),
            policies=Policies(notice=timedelta(seconds=notice)),
        ),
        began,
    )


def test_without_a_limit_nothing_is_ever_due():
    endless = clock(None)
    assert list(endless.due_events(1e12)) == []
    assert endless.next_deadline() == endless.seconds_left(5.0) == float("inf")


@pytest.mark.parametrize(
    ("now", "events"),
    [
        (1539.9, []),
        (1540.0, [NoticeDue()]),
        (1599.9, [NoticeDue()]),
        (1600.0, [NoticeDue(), TimeLimitReached()]),
    ],
)
def test_notice_comes_its_lead_before_the_limit(now, events):
    assert list(clock(600).due_events(now)) == events


def test_each_clock_event_is_yielded_once():
    one = clock(600)
    assert list(one.due_events(1540.0)) == [NoticeDue()]
    assert list(one.due_events(1600.0)) == [TimeLimitReached()]
    assert list(one.due_events(1700.0)) == []


def test_a_lead_longer_than_the_limit_gives_notice_at_the_start():
    assert list(clock(30, notice=60).due_events(1000.0)) == [NoticeDue()]


def test_the_next_moment_to_look_is_the_earliest_that_is_left():
    one = clock(600)
    assert one.next_deadline() == 1540.0
    list(one.due_events(1540.0))
    assert one.next_deadline() == 1600.0
    list(one.due_events(1600.0))
    assert one.next_deadline() == float("inf")


@pytest.mark.parametrize(("now", "left"), [(1000.0, 600.0), (1590.0, 10.0), (1700.0, 0.0)])
def test_seconds_left_are_never_negative(now, left):
    assert clock(600).seconds_left(now) == left


def test_preemption_reserve_leaves_ranks_most_of_the_grace():
    clock = Clock(end_at=3600.0, notice_seconds=60.0, reserve_seconds=15.0)
    clock.set_end(108.0, now=100.0)
    assert clock.seconds_left(100.0) == pytest.approx(6.0)
