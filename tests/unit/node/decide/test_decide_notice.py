"""The scheduler wants its nodes back: notice, warnings, and the time limit."""

import signal

import pytest
from story import Story, in_phase

from echelon.node.situation import (
    Ending,
    GiveNotice,
    LauncherLost,
    NoticeDue,
    Phase,
    StopRanks,
    TimeIsUp,
    WarningCame,
)

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
    assert story.die().again().last[-1] == GiveNotice((0, 1))


def test_notice_while_winding_still_reaches_those_who_have_not_left():
    assert Story().run().leave(0, 75).tell(NoticeDue()).last == (GiveNotice((0, 1)),)


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.BINDING, Phase.STOPPING, Phase.DUMPING])
def test_notice_needs_running_ranks(phase):
    story = in_phase(phase).tell(NoticeDue())
    assert story.last == ()
    assert story.state.notice


# The scheduler's own warning


def test_ranks_that_die_of_the_schedulers_term_are_requeued_and_it_costs_nothing():
    story = Story(procs_per_node=1).run().tell(WarningCame())
    story.leave(0, -signal.SIGTERM).leave(1, 75).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert not story.outcome.counts


@pytest.mark.parametrize("code", [-signal.SIGTERM, -signal.SIGKILL])
def test_what_a_launcher_makes_of_a_warning_is_a_requeue_that_costs_none(code):
    story = Story(procs_per_node=1).run().tell(WarningCame()).leave(0, code)
    story.tell(LauncherLost(0, "srun on host0 ended with code 137")).stopped()
    assert (story.outcome.ending, story.outcome.counts) == (Ending.REQUEUED, False)
    assert story.outcome.reason == "the scheduler is ending the job"


def test_a_term_without_a_warning_is_a_fault():
    story = Story(procs_per_node=1).run().leave(0, -signal.SIGTERM).stopped()
    assert story.outcome.ending is Ending.FAILED


# The time limit


def test_the_time_limit_stops_and_requeues():
    story = Story(requeues=1).run().tell(TimeIsUp())
    assert story.last == (StopRanks(0, (0, 1), 5.0),)
    assert story.stopped().outcome.ending is Ending.REQUEUED


def test_the_time_limit_without_requeues_fails_as_timeout_does():
    story = Story(restarts=3).run().tell(TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 124
    assert story.outcome.reason.startswith("the time limit was reached")
    assert story.state.restarts_used == 0


def test_the_time_limit_while_a_fault_is_being_stopped_leaves_no_next_generation():
    story = Story(requeues=1, restarts=3).run().leave(0, 1).tell(TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_the_time_limit_before_anyone_has_come_ends_at_once():
    assert Story().tell(TimeIsUp()).outcome.exit_code == 124


def test_a_run_that_succeeded_is_not_failed_by_the_time_limit_while_it_is_swept():
    story = Story().run().all_leave(0).tell(TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.SUCCEEDED
