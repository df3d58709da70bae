"""Lost nodes: a spare, a new agent, a smaller run, or the end."""

import pytest
from story import Story

from echelon.supervisor.state import AgentLost, EndAgent, Ending, Phase, PhaseTimedOut, Send, StartAgent, StartRanks
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import BindPort, Stop, Stopped


def test_a_lost_agent_is_ended_and_the_others_stopped():
    story = Story(restarts=1).run().lose(1)
    assert story.last == (EndAgent(1), Send((0,), Stop(generation=0, grace=5.0)))


def test_the_fault_names_the_lost_host():
    story = Story().run().lose(1, Loss.HOST).stopped()
    assert story.outcome.fault.sentence == "lost host1: its host does not answer"


def test_the_fault_gives_the_missing_heartbeat_as_the_reason():
    silence = Fault(sentence="lost host1: no heartbeat for 15 s", host_lost=True)
    story = Story().run().tell(AgentLost(1, Loss.HOST, silence)).stopped()
    assert story.outcome.fault.sentence == silence.sentence
    assert story.outcome.fault.cause == "node failure"


def test_an_old_heartbeat_reason_is_not_used_for_a_dead_agent():
    silence = Fault(sentence="lost host1: no heartbeat for 15 s", host_lost=True)
    story = Story(restarts=1).run().tell(AgentLost(1, Loss.HOST, silence)).stopped().again().lose(1).stopped()
    assert story.outcome.fault.sentence == "lost host1: its agent died"


def test_losing_the_same_agent_twice_is_losing_it_once():
    story = Story(restarts=1).run().lose(1).lose(1)
    assert story.last == ()


def test_a_lost_spare_hurts_nothing_that_runs():
    story = Story(spare_nodes=1).run().lose(2)
    assert story.phase is Phase.RUNNING
    assert story.last == (EndAgent(2),)


def test_a_spare_lost_before_the_start_hurts_nothing_either():
    story = Story(spare_nodes=1).lose(2).gather(0, 1)
    assert story.phase is Phase.BINDING
    assert story.state.restarts_used == 0


def test_a_lost_spare_is_not_used_later():
    story = Story(spare_nodes=1, restarts=1).run().lose(2).lose(1).stopped()
    assert story.done(StartAgent)[-1] == StartAgent(1)


@pytest.mark.parametrize("loss", Loss)
def test_a_spare_comes_first(loss):
    story = Story(spare_nodes=1, restarts=1).run().lose(0, loss).stopped()
    assert story.phase is Phase.BINDING
    assert story.state.members == (1, 2)
    assert len(story.done(StartAgent)) == 3


def test_without_a_spare_a_dead_agent_is_started_again_in_place():
    story = Story(restarts=1).run().lose(1).stopped()
    assert story.phase is Phase.GATHERING
    assert story.last[-1] == StartAgent(1)
    assert story.gather(1).last == (Send((0,), BindPort(generation=1)),)


def test_dead_agent_restarts_even_if_fewer_nodes_are_enough():
    story = Story(nodes=3, min_nodes=1, restarts=1).run().lose(2).stopped()
    assert story.last[-1] == StartAgent(2)


def test_a_silent_host_makes_the_run_smaller():
    story = Story(nodes=3, min_nodes=2, restarts=1).run().lose(1, Loss.HOST).stopped().bind()
    assert story.done(StartRanks)[-1].members == (0, 2)
    assert len(story.done(StartAgent)) == 3


def test_a_run_that_shrank_counts_the_ranks_it_has_left():
    story = Story(nodes=2, min_nodes=1, restarts=1).run().lose(1, Loss.HOST).stopped().bind().all_leave(0).stopped()
    assert story.outcome.ending is Ending.SUCCEEDED


def test_too_few_nodes_restart_a_reusable_lost_host():
    story = Story(restarts=1).run().lose(1, Loss.HOST).stopped()
    assert story.last[-1] == StartAgent(1)


def test_too_few_nodes_end_the_run_if_hosts_are_not_reusable():
    story = Story(restarts=1, lost_host_is_reusable=False).run().lose(1, Loss.HOST).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason == "1 of 2 nodes are left (lost: host1); --requeues is not set"
    assert "--spare-nodes" in story.outcome.hint
    assert story.outcome.lost_hosts == ("host1",)
    assert StartAgent(1) not in story.last


def test_below_the_smallest_size_a_requeue_may_bring_other_hosts():
    story = Story(restarts=1, requeues=1, lost_host_is_reusable=False).run().lose(1, Loss.HOST).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.uses_requeue
    assert story.outcome.lost_hosts == ("host1",)


def test_spare_then_in_place_then_smaller():
    story = Story(nodes=3, min_nodes=2, spare_nodes=1, restarts=3, lost_host_is_reusable=False).run()
    story.progress(step=1).lose(0, Loss.HOST).stopped().again()
    assert story.state.members == (1, 2, 3)
    story.progress(step=2).lose(1, Loss.PROCESS).stopped().again()
    assert story.state.members == (1, 2, 3)
    story.progress(step=3).lose(2, Loss.HOST).stopped().again()
    assert story.state.members == (1, 3)


def test_nodes_left_after_shrinking_keep_their_order():
    story = Story(nodes=2, spare_nodes=2, restarts=1).run().lose(0).lose(2).stopped()
    assert story.state.members == (1, 3)


def test_an_agent_lost_while_gathering_is_a_fault():
    story = Story(restarts=1).lose(1)
    assert story.state.restarts_used == 1
    assert story.last[0] == EndAgent(1)
    assert story.last[-1] == StartAgent(1)


def test_an_agent_lost_while_binding_is_a_fault():
    story = Story(restarts=1).gather().lose(0).stopped()
    assert story.state.restarts_used == 1
    assert story.gather(0).last == (Send((0,), BindPort(generation=1)),)


def test_an_agent_that_dies_at_every_start_uses_up_the_restarts():
    story = Story(restarts=2).lose(1).lose(1).lose(1)
    assert story.outcome.ending is Ending.FAILED
    assert story.state.restarts_used == 2


def test_an_agent_that_does_not_answer_to_a_stop_is_lost():
    story = Story(restarts=1).run().leave(0, 1).hear(0, Stopped(generation=0)).tell(PhaseTimedOut(Phase.STOPPING))
    assert EndAgent(1) in story.last
    assert EndAgent(0) not in story.last
    assert story.state.restarts_used == 1
    assert story.phase is Phase.GATHERING


def test_returned_node_is_not_counted_as_lost():
    story = Story(restarts=2).run().lose(1).stopped().gather(1)
    assert story.state.losses == {}
