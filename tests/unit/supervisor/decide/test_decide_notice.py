"""Notice, preemption and the time limit."""

import signal

import pytest
from story import Story, in_phase

from echelon.supervisor.state import Ending, GiveNotice, NoticeDue, Phase, Send, TimeLimitReached
from echelon.wire.messages import Preempted, Stop
from echelon.wire.reports import LauncherFailed

# Notice


def test_notice_is_given_to_the_ranks_that_run():
    assert Story().run().tell(NoticeDue()).last == (GiveNotice((0, 1)),)


def test_notice_is_given_once():
    assert Story().run().tell(NoticeDue()).tell(NoticeDue()).last == ()


def test_notice_before_the_ranks_run_is_given_when_they_start():
    story = Story().gather().tell(NoticeDue())
    assert story.last == ()
    assert story.bind().last[-1] == GiveNotice((0, 1))


def test_notice_is_given_again_to_later_generations():
    story = Story(restarts=2).run().tell(NoticeDue()).die().again()
    assert story.last[-1] == GiveNotice((0, 1))
    assert story.die(lines=1).again().last[-1] == GiveNotice((0, 1))


def test_notice_while_draining_reaches_remaining_ranks():
    assert Story().run().leave(0, 75).tell(NoticeDue()).last == (GiveNotice((0, 1)),)


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.BINDING, Phase.STOPPING, Phase.COLLECTING_EVIDENCE])
def test_notice_needs_running_ranks(phase):
    story = in_phase(phase).tell(NoticeDue())
    assert story.last == ()
    assert story.state.notice


# The scheduler's own warning


def test_ranks_killed_by_preemption_requeue_without_using_one():
    story = Story(procs_per_node=1).run().hear(0, Preempted())
    story.leave(0, -signal.SIGTERM).leave(1, 75).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert not story.outcome.uses_requeue


@pytest.mark.parametrize("code", [-signal.SIGTERM, -signal.SIGKILL])
def test_launcher_failure_during_preemption_requeues_for_free(code):
    story = Story(procs_per_node=1).run().hear(0, Preempted()).leave(0, code)
    story.hear(0, LauncherFailed(generation=0, sentence="srun on host0 ended with code 137")).stopped()
    assert (story.outcome.ending, story.outcome.uses_requeue) == (Ending.REQUEUED, False)
    assert story.outcome.reason.startswith("the scheduler is ending the job")


def test_ranks_that_died_of_a_preemption_are_counted():
    story = Story(procs_per_node=1).run().hear(0, Preempted())
    story.leave(0, -signal.SIGTERM).leave(1, -signal.SIGTERM).stopped()
    reason = "the scheduler is ending the job; 2 ranks without a SIGTERM handler were killed by its SIGTERM"
    assert story.outcome.reason == reason


def test_a_term_without_a_warning_is_a_fault():
    story = Story(procs_per_node=1).run().leave(0, -signal.SIGTERM).stopped()
    assert story.outcome.ending is Ending.FAILED


# The time limit


def test_the_time_limit_stops_and_requeues():
    story = Story(requeues=1).run().tell(TimeLimitReached())
    assert story.last == (Send((0, 1), Stop(generation=0, grace=5.0)),)
    assert story.stopped().outcome.ending is Ending.REQUEUED


def test_the_time_limit_without_requeues_fails_as_timeout_does():
    story = Story(restarts=3).run().tell(TimeLimitReached()).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 124
    assert story.outcome.reason.startswith("the time limit was reached")
    assert story.state.restarts_used == 0


def test_time_limit_during_a_stop_prevents_the_next_generation():
    story = Story(requeues=1, restarts=3).run().leave(0, 1).tell(TimeLimitReached()).stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_time_limit_before_any_agent_connects_ends_at_once():
    assert Story().tell(TimeLimitReached()).outcome.exit_code == 124


def test_time_limit_during_cleanup_does_not_fail_a_finished_run():
    story = Story().run().all_leave(0).tell(TimeLimitReached()).stopped()
    assert story.outcome.ending is Ending.SUCCEEDED
