"""A lost node uses no restart if the run can continue without it."""

import pytest
from story import Story

from echelon.supervisor.state import AgentLost, Ending, Phase, PhaseTimedOut, ReportFault, StartAgent
from echelon.wire.faults import Loss
from echelon.wire.messages import Stopped

AWAY = {"lost_host_is_reusable": False}
LOSSES = [Loss.PROCESS, Loss.HOST]
ECHO = "Connection closed by peer [10.0.0.2]:4711"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_spare_takes_its_place(loss, comes_back):
    story = Story(spare_nodes=1, lost_host_is_reusable=comes_back).run().lose(0, loss).stopped().bind()
    assert (story.state.members, story.state.restarts_used, story.generation) == ((1, 2), 0, 1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("comes_back", [True, False])
def test_the_run_gets_smaller(loss, comes_back):
    story = Story(min_nodes=1, lost_host_is_reusable=comes_back).run().lose(1, loss).stopped().bind()
    assert (story.state.members, story.state.restarts_used) == ((0,), 0)
    assert len(story.done(StartAgent)) == 2


@pytest.mark.parametrize("loss", LOSSES)
def test_another_attempt_gets_other_hosts(loss):
    story = Story(requeues=1, **AWAY).run().lose(1, loss).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.lost_hosts == ("host1",)


def test_lost_host_uses_no_restart_even_if_some_are_left():
    story = Story(min_nodes=1, restarts=2, **AWAY).run().lose(1, Loss.HOST).stopped()
    assert story.done(ReportFault)[-1].restarts_left == 2


def test_too_few_nodes_are_the_reason_of_the_outcome():
    story = Story(**AWAY).run().lose(1).stopped()
    assert story.outcome.reason == "1 of 2 nodes are left (lost: host1); --requeues is not set"
    assert story.outcome.fault.sentence == "lost host1: its agent died"


def test_reusable_host_restarts_only_with_restarts_left():
    story = Story().run().lose(1, Loss.HOST).stopped()
    assert story.outcome.reason == "--restarts is not set"


def test_agent_that_dies_again_before_connecting_is_given_up():
    """A host that was shut down: its connections are closed, as when an agent alone dies."""
    story = Story(min_nodes=1, restarts=3, **AWAY).run().lose(1).stopped()
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
def test_rank_that_waited_for_a_lost_node_is_not_the_cause(loss):
    """Its peers raised first, and were ended by us."""
    story = Story(min_nodes=1, **AWAY).run().leave(0, 1, error=ECHO).leave(1, -15, time=101.0)
    story.hear(0, Stopped(generation=0)).tell(loss)
    (report,) = story.done(ReportFault)
    assert report.fault.sentence.startswith("lost host1: ")
    assert story.state.members == (0,)


def test_failed_rank_is_the_cause_if_a_node_is_lost_later():
    story = Story(min_nodes=1, restarts=1, **AWAY).run().leave(0, 1, error="out of luck").lose(1, Loss.HOST).stopped()
    assert story.done(ReportFault)[0].fault.sentence == "rank 0 on host0 raised ValueError: out of luck"
