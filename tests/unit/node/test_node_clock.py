"""Notice and end of an attempt, each told once."""

from datetime import timedelta

import pytest

from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.node.clock import Clock
from echelon.node.situation import NoticeDue, TimeIsUp


def clock(limit, notice=60, began=1000.0):
    return Clock.of(
        Job(
            name="x",
            script=Script(kind=ScriptKind.FILE, target="x.py"),
            cwd="/",
            python="python",
            resources=Resources(time_limit=None if limit is None else timedelta(seconds=limit)),
            policies=Policies(notice=timedelta(seconds=notice)),
        ),
        began,
    )


def test_without_a_limit_nothing_is_ever_due():
    endless = clock(None)
    assert list(endless.due(1e12)) == []
    assert endless.next() == endless.seconds_left(5.0) == float("inf")


@pytest.mark.parametrize(
    ("now", "events"),
    [
        (1539.9, []),
        (1540.0, [NoticeDue()]),
        (1599.9, [NoticeDue()]),
        (1600.0, [NoticeDue(), TimeIsUp()]),
    ],
)
def test_notice_comes_its_lead_before_the_limit(now, events):
    assert list(clock(600).due(now)) == events


def test_each_is_told_once():
    one = clock(600)
    assert list(one.due(1540.0)) == [NoticeDue()]
    assert list(one.due(1600.0)) == [TimeIsUp()]
    assert list(one.due(1700.0)) == []


def test_a_lead_longer_than_the_limit_gives_notice_at_the_start():
    assert list(clock(30, notice=60).due(1000.0)) == [NoticeDue()]


def test_the_next_moment_to_look_is_the_earliest_that_is_left():
    one = clock(600)
    assert one.next() == 1540.0
    list(one.due(1540.0))
    assert one.next() == 1600.0
    list(one.due(1600.0))
    assert one.next() == float("inf")


@pytest.mark.parametrize(("now", "left"), [(1000.0, 600.0), (1590.0, 10.0), (1700.0, 0.0)])
def test_the_seconds_that_are_left_are_never_negative(now, left):
    assert clock(600).seconds_left(now) == left


def test_a_preemption_leaves_the_ranks_most_of_the_grace_that_the_scheduler_gives():
    clock = Clock(end_at=3600.0, lead=60.0, reserve=15.0)
    clock.ends(108.0, now=100.0)
    assert clock.seconds_left(100.0) == pytest.approx(6.0)
