"""Cancel: once with grace, twice without, and nothing else is the outcome."""

import pytest
from story import BROKEN, SIGINT, SIGTERM, Story

from echelon.node.situation import (
    CancelAsked,
    Ending,
    Hopeless,
    NodeStopped,
    Outcome,
    Phase,
    RanksHung,
    ReportFault,
    StacksWritten,
    StopRanks,
    TimeIsUp,
)


@pytest.mark.parametrize(("signum", "word", "code"), [(SIGINT, "SIGINT", 130), (SIGTERM, "SIGTERM", 143)])
def test_cancel_stops_with_grace_and_ends_cancelled(signum, word, code):
    story = Story(restarts=3, requeues=3).run().tell(CancelAsked(signum))
    assert story.last == (StopRanks(0, (0, 1), 5.0),)
    assert story.stopped().outcome == Outcome(ending=Ending.CANCELLED, exit_code=code, reason=f"cancelled by {word}")


def test_a_second_cancel_has_no_grace():
    story = Story().run().tell(CancelAsked(SIGTERM)).tell(NodeStopped(0, 0)).tell(CancelAsked(SIGTERM))
    assert story.last == (StopRanks(0, (1,), 0.0),)


def test_the_first_cancel_while_a_fault_is_stopped_keeps_the_grace():
    story = Story(restarts=1).run().leave(0, 1).tell(CancelAsked(SIGTERM))
    assert story.last == ()
    assert story.stopped().outcome.ending is Ending.CANCELLED


def test_a_second_cancel_during_a_dump_does_not_wait_for_the_stacks_and_has_no_grace():
    story = Story().run().tell(RanksHung(0, "hung"), CancelAsked(SIGTERM), CancelAsked(SIGTERM))
    if story.phase is Phase.DUMPING:
        story.tell(StacksWritten(0, 0), StacksWritten(0, 1))
    assert story.done(StopRanks)[-1].grace == 0.0


def test_cancel_before_anyone_has_come_ends_at_once():
    assert Story().tell(CancelAsked(SIGINT)).outcome.exit_code == 130


def test_cancel_between_generations_starts_no_further_one():
    story = Story(restarts=3).run().lose(1).stopped().tell(CancelAsked(SIGTERM)).stopped()
    assert story.outcome.ending is Ending.CANCELLED


def test_ranks_that_fail_while_being_cancelled_are_no_fault():
    story = Story(restarts=3).run().tell(CancelAsked(SIGTERM)).leave(0, -15).leave(1, 1).stopped()
    assert story.done(ReportFault) == []


def test_a_cancelled_run_is_not_requeued_by_the_time_limit():
    story = Story(requeues=3).run().tell(CancelAsked(SIGTERM), TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.CANCELLED


def test_a_cancelled_run_stays_cancelled_when_a_node_has_trouble():
    story = Story().run().tell(CancelAsked(SIGTERM), Hopeless(BROKEN)).stopped()
    assert story.outcome.ending is Ending.CANCELLED
