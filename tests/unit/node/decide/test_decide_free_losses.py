"""A node that is lost is no fault of the script: where the run can go on without it, it costs no restart."""

import pytest
from story import Story

from echelon.node.situation import AgentLost, Ending, Loss, NodeStopped, Phase, PhaseTimedOut, ReportFault, StartAgent

AWAY = {"host_comes_back": False}
ECHO = "Connection closed by peer [10.0.0.2]:4711"


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_spare_takes_its_place(loss, comes_back):
    story = Story(spares=1, host_comes_back=comes_back).run().lose(0, loss).stopped().bind()
    assert (story.state.members, story.state.restarts_used, story.generation) == ((1, 2), 0, 1)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("comes_back", [True, False])
def test_the_run_gets_smaller(loss, comes_back):
    story = Story(smallest=1, host_comes_back=comes_back).run().lose(1, loss).stopped().bind()
    assert (story.state.members, story.state.restarts_used) == ((0,), 0)
    assert len(story.done(StartAgent)) == 2


@pytest.mark.parametrize("loss", Loss)
def test_another_attempt_gets_other_hosts(loss):
    story = Story(requeues=1, **AWAY).run().lose(1, loss).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.lost_hosts == ("host1",)


def test_of_a_silent_host_no_restart_is_used_even_where_there_are_some():
    story = Story(smallest=1, restarts=2, **AWAY).run().lose(1, Loss.HOST).stopped()
    assert story.done(ReportFault)[-1].restarts_left == 2


def test_where_there_is_nothing_to_go_on_with_that_is_the_reason():
    story = Story(**AWAY).run().lose(1).stopped()
    assert story.outcome.reason == "1 of 2 nodes are left (lost: host1), and no requeues were asked for"
    assert story.outcome.fault.sentence == "host1 was lost: its agent died"


def test_a_host_that_comes_back_is_started_again_for_a_restart_only():
    story = Story().run().lose(1, Loss.HOST).stopped()
    assert story.outcome.reason == "no restarts were asked for"


def test_an_agent_that_dies_again_before_it_has_said_a_word_is_not_tried_for_ever():
    """A host that was shut down: its connections are closed, as when an agent alone dies."""
    story = Story(smallest=1, restarts=3, **AWAY).run().lose(1).stopped()
    assert story.last[-1] == StartAgent(1)
    story.lose(1)
    assert (story.phase, story.state.members, story.state.restarts_used) == (Phase.BINDING, (0,), 1)
    assert story.state.idle_generations == 1


def test_and_without_room_to_shrink_it_is_requeued_elsewhere():
    story = Story(requeues=1, restarts=3, **AWAY).run().lose(1).stopped().lose(1)
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.lost_hosts == ("host1",)


@pytest.mark.parametrize(
    "loss", [AgentLost(1, Loss.PROCESS), AgentLost(1, Loss.HOST), PhaseTimedOut(Phase.STOPPING)], ids=str
)
def test_who_waited_for_it_is_not_blamed(loss):
    """Its peers raised first, and were ended by us."""
    story = Story(smallest=1, **AWAY).run().leave(0, 1, error=ECHO).leave(1, -15, time=101.0)
    story.tell(NodeStopped(0, 0), loss)
    (report,) = story.done(ReportFault)
    assert report.fault.sentence.startswith("host1 was lost: ")
    assert story.state.members == (0,)


def test_a_rank_that_failed_by_itself_is_blamed_whoever_is_lost_then():
    story = Story(smallest=1, restarts=1, **AWAY).run().leave(0, 1, error="out of luck").lose(1, Loss.HOST).stopped()
    assert story.done(ReportFault)[0].fault.sentence == "rank 0 on host0 raised ValueError: out of luck"
