"""Nodes that are lost: a spare, the same one again, a smaller run, or the end."""

import pytest
from story import Story

from echelon.node.situation import (
    BindPort,
    EndAgent,
    Ending,
    Loss,
    NodeStopped,
    Phase,
    PhaseTimedOut,
    Progressed,
    StartAgent,
    StartRanks,
    StopRanks,
)


def test_a_lost_agent_is_ended_and_the_others_stopped():
    story = Story(restarts=1).run().lose(1)
    assert story.last == (EndAgent(1), StopRanks(0, (0,), 5.0))


def test_the_loss_is_told_with_the_host():
    story = Story().run().lose(1, Loss.HOST).stopped()
    assert story.outcome.fault.sentence == "host1 was lost: it fell silent"


def test_losing_the_same_agent_twice_is_losing_it_once():
    story = Story(restarts=1).run().lose(1).lose(1)
    assert story.last == ()


def test_a_lost_spare_hurts_nothing_that_runs():
    story = Story(spares=1).run().lose(2)
    assert story.phase is Phase.RUNNING
    assert story.last == (EndAgent(2),)


def test_a_spare_lost_before_the_start_hurts_nothing_either():
    story = Story(spares=1).lose(2).gather(0, 1)
    assert story.phase is Phase.BINDING
    assert story.state.restarts_used == 0


def test_a_lost_spare_is_not_used_later():
    story = Story(spares=1, restarts=1).run().lose(2).lose(1).stopped()
    assert story.done(StartAgent)[-1] == StartAgent(1)


@pytest.mark.parametrize("loss", Loss)
def test_a_spare_comes_first(loss):
    story = Story(spares=1, restarts=1).run().lose(0, loss).stopped()
    assert story.phase is Phase.BINDING
    assert story.state.members == (1, 2)
    assert len(story.done(StartAgent)) == 3


def test_without_a_spare_a_dead_agent_is_started_again_in_place():
    story = Story(restarts=1).run().lose(1).stopped()
    assert story.phase is Phase.GATHERING
    assert story.last[-1] == StartAgent(1)
    assert story.gather(1).last == (BindPort(0, 1),)


def test_a_dead_agent_is_started_again_even_where_fewer_nodes_would_do():
    story = Story(nodes=3, smallest=1, restarts=1).run().lose(2).stopped()
    assert story.last[-1] == StartAgent(2)


def test_a_silent_host_makes_the_run_smaller():
    story = Story(nodes=3, smallest=2, restarts=1).run().lose(1, Loss.HOST).stopped().bind()
    assert story.done(StartRanks)[-1].members == (0, 2)
    assert len(story.done(StartAgent)) == 3


def test_a_run_that_shrank_counts_the_ranks_it_has_left():
    story = Story(nodes=2, smallest=1, restarts=1).run().lose(1, Loss.HOST).stopped().bind().all_leave(0).stopped()
    assert story.outcome.ending is Ending.SUCCEEDED


def test_below_the_smallest_size_a_silent_host_that_comes_back_is_tried_again():
    story = Story(restarts=1).run().lose(1, Loss.HOST).stopped()
    assert story.last[-1] == StartAgent(1)


def test_below_the_smallest_size_a_silent_host_that_stays_away_is_the_end():
    story = Story(restarts=1, host_comes_back=False).run().lose(1, Loss.HOST).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason == "1 of 2 nodes are left (lost: host1), and no requeues were asked for"
    assert "--spare-nodes" in story.outcome.hint
    assert story.outcome.lost_hosts == ("host1",)
    assert StartAgent(1) not in story.last


def test_below_the_smallest_size_a_requeue_may_bring_other_hosts():
    story = Story(restarts=1, requeues=1, host_comes_back=False).run().lose(1, Loss.HOST).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.counts
    assert story.outcome.lost_hosts == ("host1",)


def test_spare_then_in_place_then_smaller():
    story = Story(nodes=3, smallest=2, spares=1, restarts=3, host_comes_back=False).run()
    story.tell(Progressed(0, step=1)).lose(0, Loss.HOST).stopped().again()
    assert story.state.members == (1, 2, 3)
    story.tell(Progressed(1, step=2)).lose(1, Loss.PROCESS).stopped().again()
    assert story.state.members == (1, 2, 3)
    story.tell(Progressed(2, step=3)).lose(2, Loss.HOST).stopped().again()
    assert story.state.members == (1, 3)


def test_the_nodes_that_are_left_over_after_shrinking_are_used_in_order():
    story = Story(nodes=2, spares=2, restarts=1).run().lose(0).lose(2).stopped()
    assert story.state.members == (1, 3)


def test_an_agent_lost_while_gathering_is_a_fault():
    story = Story(restarts=1).lose(1)
    assert story.state.restarts_used == 1
    assert story.last[0] == EndAgent(1)
    assert story.last[-1] == StartAgent(1)


def test_an_agent_lost_while_binding_is_a_fault():
    story = Story(restarts=1).gather().lose(0).stopped()
    assert story.state.restarts_used == 1
    assert story.gather(0).last == (BindPort(0, 1),)


def test_an_agent_that_dies_at_every_start_uses_up_the_restarts():
    story = Story(restarts=2).lose(1).lose(1).lose(1)
    assert story.outcome.ending is Ending.FAILED
    assert story.state.restarts_used == 2


def test_an_agent_that_does_not_answer_to_a_stop_is_lost():
    story = Story(restarts=1).run().leave(0, 1).tell(NodeStopped(0, 0), PhaseTimedOut(Phase.STOPPING))
    assert EndAgent(1) in story.last
    assert EndAgent(0) not in story.last
    assert story.state.restarts_used == 1
    assert story.phase is Phase.GATHERING


def test_a_node_that_has_come_back_is_no_longer_counted_as_lost():
    story = Story(restarts=2).run().lose(1).stopped().gather(1)
    assert story.state.losses == {}
