"""Exit code 75: the ranks stopped in time and request a requeue."""

from story import Story

from echelon.supervisor.state import Ending, Phase, PhaseTimedOut, Send
from echelon.wire.messages import Stop


def test_ranks_that_all_leave_with_75_are_requeued():
    story = Story(requeues=1).run().all_leave(75).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.exit_code == 75
    assert story.state.restarts_used == 0


def test_the_first_75_waits_for_the_others():
    story = Story(requeues=1).run().leave(0, 75)
    assert story.phase is Phase.DRAINING
    assert story.last == ()


def test_some_zeros_among_the_75s_are_requeued_too():
    story = Story(nodes=1, requeues=1).run().leave(0, 0).leave(1, 75).stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_failure_after_others_exit_with_75_is_not_a_fault():
    story = Story(nodes=1, requeues=1).run().leave(0, 75).leave(1, 1, error="Connection closed by peer").stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_ranks_that_never_leave_after_a_75_are_stopped():
    story = Story(requeues=1).run().leave(0, 75).tell(PhaseTimedOut(Phase.DRAINING))
    assert story.last == (Send((0, 1), Stop(generation=0, grace=5.0)),)
    assert story.stopped().outcome.ending is Ending.REQUEUED


def test_75_fails_when_the_requeues_are_used_up():
    story = Story(requeues=2, requeues_used=2).run().all_leave(75).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 75
    assert story.outcome.reason == "the ranks stopped in time; all 2 requeues are used"
    assert "echelon resume" in story.outcome.hint


def test_75_fails_without_requeues():
    assert Story().run().all_leave(75).stopped().outcome.reason.endswith("--requeues is not set")


def test_a_crash_before_any_75_is_a_fault():
    story = Story(requeues=1, restarts=1).run().leave(1, 1).leave(0, 75).stopped()
    assert story.generation == 1
