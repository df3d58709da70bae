"""The supervisor's decisions, as a pure function: a state and an event give the next state and what to do."""

from __future__ import annotations

from dataclasses import replace

from echelon.exit_codes import TIME_LIMIT
from echelon.node.blame import blamed, loss_of
from echelon.node.faults import Fault, signal_name
from echelon.node.gather import alive, begin, begin_when_gathered, finish, ready, requeue, with_node
from echelon.node.leaving import asks_for_another_attempt, in_time
from echelon.node.messages import Exit
from echelon.node.recover import further, recover, tally
from echelon.node.situation import (
    Action,
    AgentJoined,
    AgentLost,
    CancelAsked,
    Decision,
    DumpStacks,
    EndAgent,
    Ending,
    Event,
    GiveNotice,
    Hopeless,
    LauncherLost,
    Loss,
    NodeState,
    NodeStopped,
    NoticeDue,
    Outcome,
    Phase,
    PhaseTimedOut,
    PortBound,
    Progressed,
    RankExited,
    RanksHung,
    Rules,
    StacksWritten,
    StartAgent,
    StartRanks,
    State,
    StopRanks,
    StoreLost,
    TimeIsUp,
    WarningCame,
)  # fmt: skip

AT_WORK = (Phase.RUNNING, Phase.WINDING)


def opening(rules: Rules) -> Decision:
    """The first decision of an attempt: one agent for every node, spares included."""
    numbers = range(rules.nodes + rules.spares)
    state = State(rules=rules, nodes=dict.fromkeys(numbers, NodeState.STARTING))
    return state, tuple(StartAgent(node) for node in numbers)


def decide(state: State, event: Event) -> Decision:
    if state.phase is Phase.ENDED or _is_stale(state, event):
        return state, ()
    match event:
        case AgentJoined():
            return _joined(state, event)
        case AgentLost():
            return _lost(state, event)
        case PortBound():
            return _bound(state, event)
        case RankExited():
            return _exited(state, event.exit)
        case Progressed():
            return further(state, event.step, event.committed, moved=event.moved), ()
        case RanksHung():
            return _hung(state, event)
        case StacksWritten():
            return _answered(state, event.node, Phase.DUMPING)
        case NodeStopped():
            return _answered(state, event.node, Phase.STOPPING)
        case StoreLost():
            return _stop(state, fault=Fault(sentence=f"the rendezvous store on {event.host} died"))
        case LauncherLost():
            return _launcher_lost(state, event.sentence)
        case PhaseTimedOut():
            return _timed_out(state, event.phase)
        case NoticeDue():
            return _noticed(state)
        case TimeIsUp():
            return _time_is_up(state)
        case WarningCame():
            return replace(state, warned=True), ()
        case CancelAsked():
            return _cancelled(state, event.signum)
        case Hopeless():
            return _stop(state, outcome=event.outcome)


def _is_stale(state: State, event: Event) -> bool:
    """Word from a generation that is over."""
    generation = getattr(event, "generation", None)
    return generation is not None and generation != state.generation


# Gathering agents, starting ranks


def _joined(state: State, event: AgentJoined) -> Decision:
    state = with_node(state, event.node, NodeState.READY)
    state = replace(state, hosts={**state.hosts, event.node: event.host})
    return begin_when_gathered(state)


def _bound(state: State, event: PortBound) -> Decision:
    if state.phase is not Phase.BINDING:
        return state, ()
    state = replace(state, phase=Phase.RUNNING)
    ports = (event.port, event.store_is_up, event.launcher_port)
    start = StartRanks(state.generation, state.members, event.address, *ports)
    notice = (GiveNotice(state.members),) if state.notice else ()
    return state, (start, *notice)


# Ranks that leave


def _exited(state: State, exit: Exit) -> Decision:
    state = replace(state, exits={**state.exits, exit.rank: exit})
    state = further(state, exit.step, exit.committed, moved=exit.lines > 0)
    if state.phase not in AT_WORK:
        return state, ()
    if len(state.exits) == len(state.members) * state.rules.procs_per_node:
        return _all_left(state)
    if state.phase is Phase.WINDING or exit.code == 0:
        return state, ()
    if asks_for_another_attempt(state, exit):
        return replace(state, phase=Phase.WINDING), ()
    return _stop(state)


def _launcher_lost(state: State, sentence: str) -> Decision:
    if state.phase not in AT_WORK:
        return state, ()  # it ends because its ranks are being stopped
    outcome = requeue(state, in_time(state)) if state.warned else None
    return _stop(state, outcome=outcome, fault=None if outcome else Fault(sentence=sentence))


def _all_left(state: State) -> Decision:
    codes = {exit.code for exit in state.exits.values()}
    if codes == {0}:
        return _stop(state, outcome=Outcome(ending=Ending.SUCCEEDED, exit_code=0, reason="all ranks finished"))
    if any(asks_for_another_attempt(state, exit) for exit in state.exits.values()):
        return _stop(state, outcome=requeue(state, in_time(state)))
    return _stop(state)


# Stopping: every fault, cancel and end goes through here, so that one stop is one stop


def _stop(state: State, *, outcome: Outcome | None = None, fault: Fault | None = None) -> Decision:
    state = replace(state, outcome=state.outcome or outcome, fault=state.fault or fault)
    if state.phase in (Phase.STOPPING, Phase.DUMPING):
        return state, ()
    return _stop_ranks(state)


def _stop_ranks(state: State) -> Decision:
    waiting = tuple(node for node in state.members if state.nodes[node] is NodeState.READY)
    state = replace(state, phase=Phase.STOPPING, pending=frozenset(waiting))
    if not waiting:
        return _stopped(state)
    grace = 0.0 if state.hurry else state.rules.grace
    return state, (StopRanks(state.generation, waiting, grace),)


def _answered(state: State, node: int, phase: Phase) -> Decision:
    if state.phase is not phase:
        return state, ()
    return _still_pending(replace(state, pending=state.pending - {node}))


def _still_pending(state: State) -> Decision:
    if state.pending:
        return state, ()
    return _stopped(state) if state.phase is Phase.STOPPING else _stop_ranks(state)


def _stopped(state: State) -> Decision:
    if state.outcome is not None:
        return finish(state, state.outcome)
    return recover(tally(state) if state.members else state, blamed(state))


# Nodes that leave


def _lost(state: State, event: AgentLost) -> Decision:
    if state.nodes.get(event.node) is NodeState.LOST:
        return state, ()
    loss = Loss.HOST if _does_not_come_back(state, event.node) else event.loss
    state = with_node(state, event.node, NodeState.LOST)
    state = replace(state, losses={**state.losses, event.node: loss})
    end = EndAgent(event.node)
    if state.phase in (Phase.STOPPING, Phase.DUMPING):
        state, actions = _still_pending(replace(state, pending=state.pending - {event.node}))
        return state, (end, *actions)
    if state.phase is Phase.GATHERING and len(alive(state)) >= state.rules.nodes:
        state, actions = begin_when_gathered(state)  # nothing has started yet, and a spare can take its place
        return state, (end, *actions)
    if state.phase is not Phase.GATHERING and event.node not in state.members:
        return state, (end,)  # a spare: nothing that runs is hurt
    state, actions = _stop(state, fault=loss_of(state, event.node))
    return state, (end, *actions)


def _does_not_come_back(state: State, node: int) -> bool:
    """Its agent died, and the next one there has died before it said a word: it is no use to try once more."""
    anew = state.phase is Phase.GATHERING and state.generation > 0
    return anew and state.nodes.get(node) is NodeState.STARTING


# Hangs, clocks and signals


def _hung(state: State, event: RanksHung) -> Decision:
    if state.phase is not Phase.RUNNING:
        return state, ()
    waiting = tuple(node for node in state.members if state.nodes[node] is NodeState.READY)
    state = replace(state, phase=Phase.DUMPING, pending=frozenset(waiting), fault=Fault(sentence=event.sentence))
    return state, (DumpStacks(state.generation, waiting),)


def _timed_out(state: State, phase: Phase) -> Decision:
    if phase is not state.phase:
        return state, ()
    match phase:
        case Phase.GATHERING:
            return _gathering_timed_out(state)
        case Phase.BINDING:
            return _lost(state, AgentLost(state.members[0], Loss.HOST))
        case Phase.WINDING:
            return _stop(state, outcome=requeue(state, f"{in_time(state)}, and those that did not were ended"))
        case Phase.DUMPING:
            return _stop_ranks(state)
        case Phase.STOPPING:
            return _stopping_timed_out(state)
        case Phase.RUNNING | Phase.ENDED:
            return state, ()


def _gathering_timed_out(state: State) -> Decision:
    """Whoever has not come by now is lost; the rest may be enough."""
    absent = [node for node, what in sorted(state.nodes.items()) if what is NodeState.STARTING]
    for node in absent:
        state = with_node(state, node, NodeState.LOST)
    state = replace(state, losses={**state.losses, **dict.fromkeys(absent, Loss.HOST)})
    ends = tuple(EndAgent(node) for node in absent)
    present = ready(state)
    if len(present) >= state.rules.smallest:
        state, actions = begin(state, present[: state.rules.nodes])
        return state, (*ends, *actions)
    names = ", ".join(state.hosts.get(node, f"node {node}") for node in absent)
    because = f"no agent came from {names} in time"
    hint = "job.out in the run's folder has what they said; --join-timeout gives them longer"
    failed = Outcome(ending=Ending.FAILED, exit_code=1, reason=because, hint=hint)
    outcome = failed if state.rules.host_comes_back else requeue(state, because, 1, hint)
    state, actions = finish(state, outcome)
    return state, (*ends, *actions)


def _stopping_timed_out(state: State) -> Decision:
    ends: tuple[Action, ...] = tuple(EndAgent(node) for node in sorted(state.pending))
    for node in state.pending:
        state = with_node(state, node, NodeState.LOST)
    losses = {**state.losses, **dict.fromkeys(state.pending, Loss.HOST)}
    state, actions = _stopped(replace(state, losses=losses, pending=frozenset()))
    return state, (*ends, *actions)


def _noticed(state: State) -> Decision:
    if state.notice:
        return state, ()
    return replace(state, notice=True), (GiveNotice(state.members),) if state.phase in AT_WORK else ()


def _time_is_up(state: State) -> Decision:
    if state.phase is Phase.WINDING:  # some ranks did ask for it in time
        return _timed_out(state, Phase.WINDING)
    return _stop(state, outcome=requeue(state, "the time limit was reached", TIME_LIMIT))


def _cancelled(state: State, signum: int) -> Decision:
    """The first signal stops with grace, the next one without."""
    outcome = Outcome(ending=Ending.CANCELLED, exit_code=128 + signum, reason=f"cancelled by {signal_name(signum)}")
    settled = state.outcome.ending if state.outcome is not None else None
    if settled is not Ending.SUCCEEDED:
        state = replace(state, outcome=outcome, hurry=settled is Ending.CANCELLED)
    if state.hurry and state.phase is Phase.STOPPING:
        return state, (StopRanks(state.generation, tuple(sorted(state.pending)), 0.0),)
    return _stop(state)
