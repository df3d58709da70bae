"""Invariants of `decide` for any events in any order."""

from hypothesis import given, settings
from hypothesis import strategies as st
from story import SIGINT, SIGTERM, TROUBLE, Story, bound, gone, hello, pulse

from echelon.supervisor.state import (
    AgentLost,
    CancelRequested,
    CutOff,
    EndAgent,
    Finish,
    GiveNotice,
    NodeState,
    NoticeDue,
    Phase,
    PhaseTimedOut,
    RanksActive,
    RanksHung,
    ReportFault,
    Send,
    StartAgent,
    StartRanks,
    TimeLimitReached,
)
from echelon.wire.faults import Loss
from echelon.wire.messages import EvidenceCollected, Exited, Hello, Preempted, Stopped
from echelon.wire.reports import LauncherFailed, StoreDied

nodes = st.integers(0, 3)
generations = st.integers(-1, 1)  # how far from the one that is on
steps = st.none() | st.integers(0, 5)
exits = st.builds(
    gone,
    st.integers(0, 5),
    st.sampled_from([0, 0, 1, 75, 75, -9]),
    time=st.floats(0, 100),
    error=st.none() | st.sampled_from(["bad batch", "Connection closed"]),
    step=steps,
)
recipes = st.one_of(  # for the current generation: the node that sends an event, and the event
    st.builds(lambda node: lambda _: (node, hello(node)), nodes),
    st.builds(lambda node, loss: lambda _: (None, AgentLost(node, loss)), nodes, st.sampled_from(Loss)),
    st.builds(lambda off, node: lambda now: (node, bound(now + off)), generations, nodes),
    st.builds(lambda off, gone: lambda now: (0, Exited(generation=now + off, exit=gone)), generations, exits),
    st.builds(lambda gone: lambda now: (0, Exited(generation=now, exit=gone)), exits),
    st.builds(
        lambda off, step, committed: lambda now: (0, pulse(now + off, step, committed)), generations, steps, steps
    ),
    st.builds(lambda off: lambda now: (None, RanksActive(now + off)), generations),
    st.builds(lambda off: lambda now: (None, RanksHung(now + off, "hung")), generations),
    st.builds(lambda off, node: lambda now: (node, EvidenceCollected(generation=now + off)), generations, nodes),
    st.builds(lambda off, node: lambda now: (node, Stopped(generation=now + off)), generations, nodes),
    st.builds(lambda node: lambda now: (node, Stopped(generation=now)), nodes),
    st.builds(lambda phase: lambda _: (None, PhaseTimedOut(phase)), st.sampled_from(Phase)),
    st.builds(lambda off: lambda now: (0, StoreDied(generation=now + off)), generations),
    st.builds(lambda off: lambda now: (0, LauncherFailed(generation=now + off, sentence="left")), generations),
    st.sampled_from([Preempted(), TROUBLE]).map(lambda message: lambda _: (0, message)),
    st.sampled_from([NoticeDue(), TimeLimitReached(), CutOff("host0", (1,), "down")]).map(
        lambda own: lambda _: (None, own)
    ),
    st.builds(lambda signum: lambda _: (None, CancelRequested(signum)), st.sampled_from([SIGINT, SIGTERM, 99])),
)
any_rules = st.builds(
    lambda size, min_nodes, spare_nodes, **rules: {
        "nodes": size,
        "min_nodes": min(size, min_nodes),
        "spare_nodes": min(spare_nodes, 4 - size),
        **rules,
    },
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 3),
    procs_per_node=st.integers(1, 2),
    restarts=st.integers(0, 4),
    requeues=st.integers(0, 1),
    lost_host_is_reusable=st.booleans(),
)


def is_known(story, node, event):
    """Only nodes of this job ever speak, and one that was given up does not: its agent has been killed."""
    node = event.node if isinstance(event, AgentLost) else node
    if isinstance(event, Hello):
        return story.state.nodes.get(node) is NodeState.STARTING
    return node is None or node in story.state.nodes


@settings(max_examples=400)
@given(any_rules, st.lists(recipes, max_size=60), st.booleans())
def test_invariants_hold_for_any_events_in_any_order(rules, script, smooth):
    story = Story(**rules)
    if smooth:
        story.run()
    for recipe in script:
        node, event = recipe(story.generation)
        if is_known(story, node, event):
            check_one(story, node, event)
    assert len(story.done(Finish)) == (story.phase is Phase.ENDED)


def check_one(story, node, event):
    before = story.state
    after = story.hear(node, event).state
    assert after.restarts_used <= after.rules.restarts
    assert 0 <= after.generation - after.restarts_used <= len(after.nodes) * (1 + after.restarts_used)
    assert after.generation - before.generation in (0, 1)
    assert len([action for action in story.last if isinstance(action, ReportFault)]) <= 1
    if before.phase is Phase.ENDED:
        assert (after, story.last) == (before, ())
    if isinstance(event, PhaseTimedOut) and event.phase is before.phase is not Phase.RUNNING:
        assert (after.phase, after.generation) != (before.phase, before.generation) or after.phase is Phase.ENDED
    check_members(after)
    for action in story.last:
        check_action(before, after, action, story.last)


def check_members(state):
    if state.phase in (Phase.BINDING, Phase.RUNNING, Phase.DRAINING):
        assert state.rules.min_nodes <= len(state.members) <= state.rules.nodes
        assert {state.nodes[node] for node in state.members} == {NodeState.READY}
    if state.phase in (Phase.COLLECTING_EVIDENCE, Phase.STOPPING):
        assert state.pending
        assert {state.nodes[node] for node in state.pending} == {NodeState.READY}
    assert set(state.losses) == {node for node, what in state.nodes.items() if what is NodeState.LOST}


def check_action(before, after, action, actions):
    """Nobody talks to a node that is not there, and no agent is started twice."""
    match action:
        case EndAgent():
            assert before.nodes[action.node] is not NodeState.LOST
        case Send():
            assert action.nodes
            assert {after.nodes[node] for node in action.nodes} == {NodeState.READY}
        case StartRanks() | GiveNotice():
            assert action.members
            assert {after.nodes[node] for node in action.members} == {NodeState.READY}
        case StartAgent():
            assert before.nodes[action.node] is NodeState.LOST or EndAgent(action.node) in actions
            assert after.nodes[action.node] is NodeState.STARTING
        case _:
            pass


@settings(max_examples=200)
@given(any_rules, st.lists(recipes, max_size=40))
def test_cancel_and_clock_end_every_run(rules, script):
    story = Story(**rules)
    for recipe in script:
        node, event = recipe(story.generation)
        if is_known(story, node, event):
            story.hear(node, event)
    story.tell(CancelRequested(SIGTERM))
    for _ in range(3):
        story.tell(PhaseTimedOut(story.phase))
    assert story.phase is Phase.ENDED
