"""Agents that connect or do not connect, spares, and the port that the first node binds."""

from story import Story, bound, hello

from echelon.supervisor.state import EndAgent, Ending, Phase, PhaseTimedOut, Send, StartAgent, StartRanks
from echelon.wire.messages import BindPort, Stop

# Gathering agents, starting ranks


def test_every_node_gets_an_agent_at_the_start_spares_included():
    assert Story(nodes=2, spare_nodes=1).last == (StartAgent(0), StartAgent(1), StartAgent(2))


def test_generation_starts_after_all_nodes_connected():
    story = Story().gather(0)
    assert story.phase is Phase.GATHERING
    assert story.last == ()


def test_first_node_binds_the_port_after_all_connected():
    story = Story().gather(1, 0)
    assert story.phase is Phase.BINDING
    assert story.last == (Send((0,), BindPort(generation=0)),)


def test_a_spare_is_not_waited_for():
    assert Story(nodes=2, spare_nodes=1).gather(0, 1).phase is Phase.BINDING


def test_spare_does_not_replace_a_node_that_may_still_connect():
    assert Story(nodes=2, spare_nodes=1).gather(0, 2).phase is Phase.GATHERING


def test_the_bound_port_is_handed_to_all_members():
    story = Story().gather(1).hear(0, hello(0, "10.0.0.7"), bound(0, 4711, store_is_up=False))
    assert story.phase is Phase.RUNNING
    assert story.last[1:] == (StartRanks((0, 1), "10.0.0.7", bound(0, 4711, store_is_up=False)),)


def test_the_launchers_own_port_is_handed_on():
    story = Story().gather().hear(0, bound(0, launcher_port=4712))
    assert story.last == (StartRanks((0, 1), "10.0.0.1", bound(0, launcher_port=4712)),)


def test_unrequested_port_is_ignored_while_running():
    story = Story().run().hear(0, bound(0, 1))
    assert story.phase is Phase.RUNNING
    assert story.last == ()


def test_a_spare_that_comes_late_disturbs_nothing():
    story = Story(spare_nodes=1).gather(0, 1).bind().gather(2)
    assert story.phase is Phase.RUNNING
    assert story.last == ()


# Timeouts while gathering


def test_unconnected_nodes_are_named():
    story = Story(nodes=3).gather(1).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.phase is Phase.ENDED
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason == "node 0, node 2 did not connect within --join-timeout (120 s)"
    assert story.done(EndAgent) == [EndAgent(0), EndAgent(2)]


def test_unconnected_restarted_agents_are_named_by_host():
    story = Story(restarts=1).run().lose(1).stopped().tell(PhaseTimedOut(Phase.GATHERING))
    assert story.outcome.reason == "host1 did not connect within --join-timeout (120 s)"


def test_connected_nodes_start_if_they_are_enough():
    story = Story(nodes=3, min_nodes=2).gather(0, 2).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.phase is Phase.BINDING
    assert story.last == (EndAgent(1), Send((0,), BindPort(generation=0)))
    assert story.state.members == (0, 2)


def test_spare_replaces_a_node_that_did_not_connect():
    story = Story(nodes=2, spare_nodes=1).gather(1, 2).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.state.members == (1, 2)
    assert story.last == (EndAgent(0), Send((1,), BindPort(generation=0)))


def test_a_head_node_that_never_binds_is_lost():
    story = Story(restarts=1, min_nodes=1, lost_host_is_reusable=False).gather().tell(PhaseTimedOut(Phase.BINDING))
    assert story.last == (EndAgent(0), Send((1,), Stop(generation=0, grace=5.0)))
    assert story.stopped().last[1:] == (Send((1,), BindPort(generation=1)),)
