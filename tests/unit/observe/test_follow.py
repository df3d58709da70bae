"""Events as they are told to the person who watches."""

import pytest

from echelon.events import Event, Kind
from echelon.observe.follow import sentence_of


def sentence(kind, attempt=0, **fields):
    return sentence_of(Event(kind=kind, time=1.0, attempt=attempt, fields=fields))


@pytest.mark.parametrize(("left", "words"), [(0, "0 restarts left"), (1, "1 restart left"), (2, "2 restarts left")])
def test_a_fault_is_told_with_the_restarts_that_are_left(left, words):
    assert sentence(Kind.FAULT, fault="rank 0 died", restarts_left=left) == f"rank 0 died ({words})"


def test_a_later_generation_is_told_with_its_hosts():
    assert sentence(Kind.GENERATION, generation=2, hosts=["a", "b"]) == "generation 2 starts on a, b"


def test_the_first_generation_is_not_worth_a_line():
    assert sentence(Kind.GENERATION, generation=0, hosts=["a"]) is None


def test_a_notice_is_told_with_the_time_that_is_left():
    assert sentence(Kind.NOTICE, seconds_left=59.5) == "notice: 59.5 s until the time limit"


def test_a_requeue_names_the_attempt_that_follows():
    told = sentence(Kind.REQUEUED, attempt=2, reason="the time limit was reached")
    assert told == "the time limit was reached: requeued, attempt 3 follows"


@pytest.mark.parametrize(
    "kind", [Kind.SUBMITTED, Kind.STARTED, Kind.RANK_READY, Kind.PROGRESS, Kind.CHECKPOINT, Kind.FINISHED]
)
def test_these_are_not_worth_a_line(kind):
    assert sentence(kind) is None


@pytest.mark.parametrize("kind", Kind)
def test_an_event_without_its_fields_is_no_crash(kind):
    sentence(kind)
