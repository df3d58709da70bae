"""Agents that come or stay away, spares among them, and the port that the first one binds."""

from story import Story

from echelon.node.situation import (
    BindPort,
    EndAgent,
    Ending,
    Phase,
    PhaseTimedOut,
    PortBound,
    StartAgent,
    StartRanks,
    StopRanks,
)

# Gathering agents, starting ranks


def test_every_node_gets_an_agent_at_the_start_spares_included():
    assert Story(nodes=2, spares=1).last == (StartAgent(0), StartAgent(1), StartAgent(2))


def test_nothing_begins_before_everyone_has_come():
    story = Story().gather(0)
    assert story.phase is Phase.GATHERING
    assert story.last == ()


def test_the_first_node_binds_the_port_once_everyone_has_come():
    story = Story().gather(1, 0)
    assert story.phase is Phase.BINDING
    assert story.last == (BindPort(0, 0),)


def test_a_spare_is_not_waited_for():
    assert Story(nodes=2, spares=1).gather(0, 1).phase is Phase.BINDING


def test_a_spare_does_not_stand_in_for_a_node_that_may_yet_come():
    assert Story(nodes=2, spares=1).gather(0, 2).phase is Phase.GATHERING


def test_the_bound_port_is_handed_to_all_members():
    story = Story().gather().tell(PortBound(0, "10.0.0.7", 4711, False))
    assert story.phase is Phase.RUNNING
    assert story.last == (StartRanks(0, (0, 1), "10.0.0.7", 4711, False),)


def test_the_launchers_own_port_is_handed_on():
    story = Story().gather().tell(PortBound(0, "10.0.0.7", 4711, False, 4712))
    assert story.last == (StartRanks(0, (0, 1), "10.0.0.7", 4711, False, 4712),)


def test_a_port_is_not_asked_for_and_so_not_used_while_running():
    story = Story().run().tell(PortBound(0, "10.0.0.8", 1, True))
    assert story.phase is Phase.RUNNING
    assert story.last == ()


def test_a_spare_that_comes_late_disturbs_nothing():
    story = Story(spares=1).gather(0, 1).bind().gather(2)
    assert story.phase is Phase.RUNNING
    assert story.last == ()


# Timeouts while gathering


def test_those_who_did_not_come_are_named():
    story = Story(nodes=3).gather(1).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.phase is Phase.ENDED
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason == "no agent came from node 0, node 2 in time"
    assert story.done(EndAgent) == [EndAgent(0), EndAgent(2)]


def test_those_who_did_not_come_back_are_named_by_their_host():
    story = Story(restarts=1).run().lose(1).stopped().tell(PhaseTimedOut(Phase.GATHERING))
    assert story.outcome.reason == "no agent came from host1 in time"


def test_those_who_came_go_on_when_they_are_enough():
    story = Story(nodes=3, smallest=2).gather(0, 2).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.phase is Phase.BINDING
    assert story.last == (EndAgent(1), BindPort(0, 0))
    assert story.state.members == (0, 2)


def test_a_spare_takes_the_place_of_one_who_did_not_come():
    story = Story(nodes=2, spares=1).gather(1, 2).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.state.members == (1, 2)
    assert story.last == (EndAgent(0), BindPort(1, 0))


def test_a_head_node_that_never_binds_is_lost():
    story = Story(restarts=1, smallest=1, host_comes_back=False).gather().tell(PhaseTimedOut(Phase.BINDING))
    assert story.last == (EndAgent(0), StopRanks(0, (1,), 5.0))
    assert story.stopped().last[1:] == (BindPort(1, 1),)
