"""Cancel: once with grace, twice without."""

import pytest
from story import SIGINT, SIGTERM, TROUBLE, Story

from echelon.supervisor.state import (
    CancelRequested,
    Ending,
    Outcome,
    Phase,
    RanksHung,
    ReportFault,
    Send,
    TimeLimitReached,
)
from echelon.wire.messages import EvidenceCollected, Stop, Stopped


@pytest.mark.parametrize(("signum", "word", "code"), [(SIGINT, "SIGINT", 130), (SIGTERM, "SIGTERM", 143)])
def test_cancel_stops_with_grace_and_ends_cancelled(signum, word, code):
    story = Story(restarts=3, requeues=3).run().tell(CancelRequested(signum))
    assert story.last == (Send((0, 1), Stop(generation=0, grace=5.0)),)
    assert story.stopped().outcome == Outcome(ending=Ending.CANCELLED, exit_code=code, reason=f"cancelled by {word}")


def test_a_second_cancel_has_no_grace():
    story = Story().run().tell(CancelRequested(SIGTERM)).hear(0, Stopped(generation=0)).tell(CancelRequested(SIGTERM))
    assert story.last == (Send((1,), Stop(generation=0, grace=0.0)),)


def test_first_cancel_during_a_stop_keeps_the_grace():
    story = Story(restarts=1).run().leave(0, 1).tell(CancelRequested(SIGTERM))
    assert story.last == ()
    assert story.stopped().outcome.ending is Ending.CANCELLED


def test_second_cancel_during_a_stack_dump_stops_without_grace():
    story = Story().run().tell(RanksHung(0, "hung"), CancelRequested(SIGTERM), CancelRequested(SIGTERM))
    if story.phase is Phase.COLLECTING_EVIDENCE:
        story.hear_each(dict.fromkeys((0, 1), EvidenceCollected(generation=0)))
    assert story.sent(Stop)[-1].grace == 0.0


def test_cancel_before_any_agent_connects_ends_at_once():
    assert Story().tell(CancelRequested(SIGINT)).outcome.exit_code == 130


def test_cancel_between_generations_starts_no_generation():
    story = Story(restarts=3).run().lose(1).stopped().tell(CancelRequested(SIGTERM)).stopped()
    assert story.outcome.ending is Ending.CANCELLED


def test_failures_during_a_cancel_are_not_a_fault():
    story = Story(restarts=3).run().tell(CancelRequested(SIGTERM)).leave(0, -15).leave(1, 1).stopped()
    assert story.done(ReportFault) == []


def test_a_cancelled_run_is_not_requeued_by_the_time_limit():
    story = Story(requeues=3).run().tell(CancelRequested(SIGTERM), TimeLimitReached()).stopped()
    assert story.outcome.ending is Ending.CANCELLED


def test_a_cancelled_run_stays_cancelled_when_a_node_has_trouble():
    story = Story().run().tell(CancelRequested(SIGTERM)).hear(0, TROUBLE).stopped()
    assert story.outcome.ending is Ending.CANCELLED
