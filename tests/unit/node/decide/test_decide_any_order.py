"""Anything, in any order: what holds whatever happens."""

from hypothesis import given, settings
from hypothesis import strategies as st
from story import BROKEN, SIGINT, SIGTERM, Story, gone

from echelon.node.situation import (
    AgentJoined,
    AgentLost,
    BindPort,
    CancelAsked,
    DumpStacks,
    EndAgent,
    Finish,
    GiveNotice,
    Hopeless,
    LauncherLost,
    Loss,
    NodeState,
    NodeStopped,
    NoticeDue,
    Phase,
    PhaseTimedOut,
    PortBound,
    Progressed,
    RankExited,
    RanksHung,
    ReportFault,
    StacksWritten,
    StartAgent,
    StartRanks,
    StopRanks,
    StoreLost,
    TimeIsUp,
    WarningCame,
)

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
recipes = st.one_of(
    st.builds(lambda node: lambda _: AgentJoined(node, f"host{node}"), nodes),
    st.builds(lambda node, loss: lambda _: AgentLost(node, loss), nodes, st.sampled_from(Loss)),
    st.builds(lambda off: lambda now: PortBound(now + off, "a", 1, True), generations),
    st.builds(lambda off, gone: lambda now: RankExited(now + off, gone), generations, exits),
    st.builds(lambda gone: lambda now: RankExited(now, gone), exits),
    st.builds(
        lambda off, step, committed, moved: lambda now: Progressed(now + off, step, committed, moved),
        generations,
        steps,
        steps,
        st.booleans(),
    ),
    st.builds(lambda off: lambda now: RanksHung(now + off, "hung"), generations),
    st.builds(lambda off, node: lambda now: StacksWritten(now + off, node), generations, nodes),
    st.builds(lambda off, node: lambda now: NodeStopped(now + off, node), generations, nodes),
    st.builds(lambda node: lambda now: NodeStopped(now, node), nodes),
    st.builds(lambda phase: lambda _: PhaseTimedOut(phase), st.sampled_from(Phase)),
    st.builds(lambda off: lambda now: StoreLost(now + off, "host0"), generations),
    st.builds(lambda off: lambda now: LauncherLost(now + off, "torchrun has left"), generations),
    st.sampled_from([lambda _: NoticeDue(), lambda _: TimeIsUp(), lambda _: WarningCame(), lambda _: Hopeless(BROKEN)]),
    st.builds(lambda signum: lambda _: CancelAsked(signum), st.sampled_from([SIGINT, SIGTERM, 99])),
)
any_rules = st.builds(
    lambda size, smallest, spares, **rules: {
        "nodes": size, "smallest": min(size, smallest), "spares": min(spares, 4 - size), **rules,
    },
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 3),
    procs_per_node=st.integers(1, 2), restarts=st.integers(0, 4), requeues=st.integers(0, 1),
    host_comes_back=st.booleans(),
)  # fmt: skip


def is_known(story, event):
    """Only nodes of this job ever speak, and one that was given up does not: its agent has been killed."""
    node = getattr(event, "node", None)
    if isinstance(event, AgentJoined):
        return story.state.nodes.get(node) is NodeState.STARTING
    return node is None or node in story.state.nodes


@settings(max_examples=400)
@given(any_rules, st.lists(recipes, max_size=60), st.booleans())
def test_whatever_happens_in_whatever_order(rules, script, smooth):
    story = Story(**rules)
    if smooth:
        story.run()
    for recipe in script:
        event = recipe(story.generation)
        if is_known(story, event):
            check_one(story, event)
    assert len(story.done(Finish)) == (story.phase is Phase.ENDED)


def check_one(story, event):
    before = story.state
    after = story.tell(event).state
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
    if state.phase in (Phase.BINDING, Phase.RUNNING, Phase.WINDING):
        assert state.rules.smallest <= len(state.members) <= state.rules.nodes
        assert {state.nodes[node] for node in state.members} == {NodeState.READY}
    if state.phase in (Phase.DUMPING, Phase.STOPPING):
        assert state.pending
        assert {state.nodes[node] for node in state.pending} == {NodeState.READY}
    assert set(state.losses) == {node for node, what in state.nodes.items() if what is NodeState.LOST}


def check_action(before, after, action, actions):
    """Nobody talks to a node that is not there, and no agent is started twice."""
    match action:
        case BindPort() | EndAgent():
            assert before.nodes[action.node] is not NodeState.LOST
        case StartRanks() | GiveNotice() | DumpStacks() | StopRanks():
            assert action.members
            assert {after.nodes[node] for node in action.members} == {NodeState.READY}
        case StartAgent():
            assert before.nodes[action.node] is NodeState.LOST or EndAgent(action.node) in actions
            assert after.nodes[action.node] is NodeState.STARTING
        case _:
            pass


@settings(max_examples=200)
@given(any_rules, st.lists(recipes, max_size=40))
def test_every_run_can_be_brought_to_its_end_by_cancel_and_the_clock(rules, script):
    story = Story(**rules)
    for recipe in script:
        event = recipe(story.generation)
        if is_known(story, event):
            story.tell(event)
    story.tell(CancelAsked(SIGTERM))
    for _ in range(3):
        story.tell(PhaseTimedOut(story.phase))
    assert story.phase is Phase.ENDED
