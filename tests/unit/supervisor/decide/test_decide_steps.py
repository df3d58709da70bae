"""A step that Slurm ended for another reason than its node, such as memory, is a fault and not a lost node."""

import pytest
from story import Story

from echelon.supervisor.state import AgentLost, Ending, ReportFault, StartAgent
from echelon.wire.faults import Fault, Loss

AWAY = {"lost_host_is_reusable": False}
MEMORY = Fault(sentence="the step on host1 was killed for memory: exceeded memory limit", hint="--mem SIZE")


def killed(story):
    return story.tell(AgentLost(1, Loss.STEP, MEMORY)).stopped()


def test_without_restarts_it_fails_and_uses_no_requeue():
    outcome = killed(Story(requeues=3, **AWAY).run()).outcome
    assert (outcome.ending, outcome.reason, outcome.hint) == (
        Ending.FAILED,
        "--restarts is not set",
        "--mem SIZE",
    )
    assert outcome.fault.sentence == MEMORY.sentence
    assert outcome.lost_hosts == ()


def test_with_restarts_the_node_gets_another_agent():
    story = killed(Story(restarts=2, requeues=3, **AWAY).run())
    assert story.last[-1] == StartAgent(1)
    assert story.done(ReportFault)[-1].restarts_left == 1
    assert story.again().state.members == (0, 1)


def test_when_all_restarts_are_used_the_node_is_not_excluded():
    story = killed(Story(restarts=1, requeues=3, **AWAY).run())
    outcome = killed(story.again()).outcome
    assert (outcome.ending, outcome.lost_hosts) == (Ending.FAILED, ())


def test_it_explains_the_errors_of_the_other_ranks():
    story = Story(**AWAY).run().leave(0, 1, error="Connection closed by peer [10.0.0.2]:4711")
    assert killed(story).outcome.fault.sentence == MEMORY.sentence


def test_a_spare_may_take_the_place_for_a_restart():
    story = killed(Story(spare_nodes=1, restarts=1, **AWAY).run()).bind()
    assert (story.state.members, story.state.restarts_used) == ((0, 2), 1)


MIXED = (AgentLost(1, Loss.STEP, MEMORY), AgentLost(0, Loss.PROCESS))


@pytest.mark.parametrize("losses", [MIXED, MIXED[::-1]])
def test_an_agent_that_is_lost_with_it_changes_nothing(losses):
    outcome = Story(requeues=3, **AWAY).run().tell(*losses).outcome
    assert (outcome.ending, outcome.fault.sentence, outcome.lost_hosts) == (Ending.FAILED, MEMORY.sentence, ())


@pytest.mark.parametrize("losses", [MIXED, MIXED[::-1]])
def test_an_agent_that_is_lost_with_it_is_started_again_too(losses):
    story = Story(restarts=1, requeues=3, **AWAY).run().tell(*losses)
    assert story.last[-2:] == (StartAgent(0), StartAgent(1))
    assert story.state.restarts_used == 1


def test_a_node_whose_step_was_ended_earlier_is_used_again():
    story = killed(Story(spare_nodes=1, restarts=1, requeues=3, **AWAY).run()).bind()
    assert story.lose(2).stopped().last[-1] == StartAgent(1)
    assert story.again().state.members == (0, 1)


def test_failed_agent_restart_by_srun_is_not_a_lost_host():
    story = killed(Story(restarts=2, requeues=3, **AWAY).run())
    outcome = killed(killed(story)).outcome
    assert (outcome.ending, outcome.fault.sentence, outcome.lost_hosts) == (Ending.FAILED, MEMORY.sentence, ())
