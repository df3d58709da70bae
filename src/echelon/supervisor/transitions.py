"""The supervisor's decisions as a pure function: from a state and an event to the next state and actions."""

from __future__ import annotations

from dataclasses import replace

from echelon.diagnosis.kills import signal_name
from echelon.diagnosis.policy import rejected_checkpoint
from echelon.errors import TIME_LIMIT
from echelon.supervisor.gathering import (
    begin_if_gathered,
    end_gathering,
    mark_hosts_lost,
    mark_lost,
    usable_nodes,
    with_node_state,
)
from echelon.supervisor.outcomes import (
    cut_off_outcome,
    finish,
    node_problem_outcome,
    requests_requeue,
    requeue_outcome,
    requeue_reason,
)
from echelon.supervisor.preflight import end_checks, lose_checked_node, open_meeting, record_check
from echelon.supervisor.recovery import (
    count_progress,
    end_delay,
    find_cause,
    loss_fault,
    recover,
    with_hang_cause,
    with_heartbeat,
    with_progress,
)
from echelon.supervisor.state import (
    Action,
    AgentEvent,
    AgentLost,
    CancelRequested,
    CutOff,
    Decision,
    EndAgent,
    Ending,
    Event,
    GiveNotice,
    NodeState,
    NoticeDue,
    Outcome,
    Phase,
    PhaseTimedOut,
    RanksActive,
    RanksHung,
    Send,
    StartRanks,
    State,
    SupervisorEvent,
    TimeLimitReached,
)
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import (
    CollectEvidence,
    EvidenceCollected,
    Exit,
    Exited,
    Heartbeat,
    Hello,
    MeetingOpened,
    NodeChecked,
    Preempted,
    Stop,
    Stopped,
)
from echelon.wire.reports import FatalNodeProblem, LauncherFailed, PortBound, StoreDied

ACTIVE_PHASES = (Phase.RUNNING, Phase.DRAINING)


def decide(state: State, node: int | None, event: Event) -> Decision:
    """`node` is the node whose agent sent the event, or None for an event of the supervisor itself."""
    if state.phase is Phase.ENDED or _is_stale(state, event):
        return state, ()
    if isinstance(event, SupervisorEvent):
        return _decide_own_event(state, event)
    return _decide_agent_message(state, node, event) if node is not None else (state, ())


def _decide_agent_message(state: State, node: int, message: AgentEvent) -> Decision:
    match message:
        case Hello():
            return _add_agent(state, node, message)
        case MeetingOpened():
            return open_meeting(state, node, message)
        case NodeChecked():
            return _continue_after_checks(*record_check(state, node, message))
        case PortBound():
            return _start_ranks(state, node, message)
        case Exited():
            return _record_exit(state, message.exit)
        case Heartbeat():
            return with_heartbeat(state, message), ()
        case EvidenceCollected():
            return _record_evidence(state, node, message)
        case Stopped():
            return _record_answer(state, node, Phase.STOPPING)
        case StoreDied():
            return _stop(state, fault=Fault(sentence=f"the rendezvous store on {state.host(node)} died"))
        case LauncherFailed():
            return _handle_launcher_failure(state, message.sentence)
        case FatalNodeProblem():
            return _stop(state, outcome=node_problem_outcome(state.host(node), message))
        case Preempted():
            return replace(state, preempted=True), ()


def _decide_own_event(state: State, event: SupervisorEvent) -> Decision:
    match event:
        case AgentLost():
            return _lose_node(state, event)
        case CutOff():
            return _stop(state, outcome=cut_off_outcome(state, event))
        case RanksActive():
            return replace(state, active=True), ()
        case RanksHung():
            return _handle_hang(state, event)
        case PhaseTimedOut():
            return _handle_timeout(state, event.phase)
        case NoticeDue():
            return _give_notice(state)
        case TimeLimitReached():
            return _handle_time_limit(state)
        case CancelRequested():
            return _cancel(state, event.signum)


def _is_stale(state: State, event: Event) -> bool:
    """Whether the event belongs to a generation that has ended."""
    generation = getattr(event, "generation", None)
    return generation is not None and generation != state.generation


# Gathering agents, starting ranks


def _add_agent(state: State, node: int, hello: Hello) -> Decision:
    state = with_node_state(state, node, NodeState.READY)
    hosts, addresses = {**state.hosts, node: hello.host}, {**state.addresses, node: hello.address}
    return begin_if_gathered(replace(state, hosts=hosts, addresses=addresses))


def _start_ranks(state: State, node: int, bound: PortBound) -> Decision:
    if state.phase is not Phase.BINDING:
        return state, ()
    state = replace(state, phase=Phase.RUNNING)
    start = StartRanks(state.members, state.addresses.get(node, ""), bound, rejected_checkpoint(state.history))
    notice = (GiveNotice(state.members),) if state.notice else ()
    return state, (start, *notice)


def _continue_after_checks(state: State, actions: tuple[Action, ...]) -> Decision:
    """Starts the first generation if the checks have ended and enough nodes passed them."""
    if state.phase is not Phase.GATHERING:
        return state, actions
    state, more = begin_if_gathered(state) if len(usable_nodes(state)) >= state.rules.nodes else end_gathering(state)
    return state, (*actions, *more)


# Exits of ranks


def _record_exit(state: State, exit: Exit) -> Decision:
    state = replace(state, exits={**state.exits, exit.rank: exit})
    state = with_progress(state, exit.step, exit.committed, active=exit.lines > 0)
    if state.phase not in ACTIVE_PHASES:
        return state, ()
    if len(state.exits) == len(state.members) * state.rules.procs_per_node:
        return _end_generation(state)
    if state.phase is Phase.DRAINING or exit.code == 0:
        return state, ()
    if requests_requeue(state, exit):
        return replace(state, phase=Phase.DRAINING), ()
    return _stop(state)


def _handle_launcher_failure(state: State, sentence: str) -> Decision:
    if state.phase not in ACTIVE_PHASES:
        return state, ()  # the launcher exits because its ranks are being stopped
    outcome = requeue_outcome(state, requeue_reason(state)) if state.preempted else None
    return _stop(state, outcome=outcome, fault=None if outcome else Fault(sentence=sentence))


def _end_generation(state: State) -> Decision:
    codes = {exit.code for exit in state.exits.values()}
    if codes == {0}:
        return _stop(state, outcome=Outcome(ending=Ending.SUCCEEDED, exit_code=0, reason="all ranks finished"))
    if any(requests_requeue(state, exit) for exit in state.exits.values()):
        return _stop(state, outcome=requeue_outcome(state, requeue_reason(state)))
    return _stop(state)


# Stopping: every fault, cancel and end calls `_stop`, so that the ranks are stopped only once


def _stop(state: State, *, outcome: Outcome | None = None, fault: Fault | None = None) -> Decision:
    state = replace(state, outcome=state.outcome or outcome, fault=state.fault or fault)
    if state.phase in (Phase.STOPPING, Phase.COLLECTING_EVIDENCE):
        return state, ()
    return _stop_ranks(state)


def _stop_ranks(state: State) -> Decision:
    waiting = tuple(node for node in state.members if state.nodes[node] is NodeState.READY)
    state = replace(state, phase=Phase.STOPPING, pending=frozenset(waiting))
    if not waiting:
        return _after_stop(state)
    grace = 0.0 if state.skip_grace else state.rules.grace
    return state, (Send(waiting, Stop(generation=state.generation, grace=grace)),)


def _record_answer(state: State, node: int, phase: Phase) -> Decision:
    if state.phase is not phase:
        return state, ()
    return _continue_if_answered(replace(state, pending=state.pending - {node}))


def _record_evidence(state: State, node: int, collected: EvidenceCollected) -> Decision:
    if state.phase is Phase.COLLECTING_EVIDENCE:
        state = replace(state, evidence=(*state.evidence, *collected.ranks))
    return _record_answer(state, node, Phase.COLLECTING_EVIDENCE)


def _continue_if_answered(state: State) -> Decision:
    if state.pending:
        return state, ()
    return _after_stop(state) if state.phase is Phase.STOPPING else _stop_ranks(with_hang_cause(state))


def _after_stop(state: State) -> Decision:
    if state.outcome is not None:
        return finish(state, state.outcome)
    return recover(count_progress(state) if state.members else state, find_cause(state))


# Lost nodes


def _lose_node(state: State, event: AgentLost) -> Decision:
    if state.nodes.get(event.node) is NodeState.LOST:
        return state, ()
    state = mark_lost(state, event)
    end = EndAgent(event.node)
    if state.phase in (Phase.STOPPING, Phase.COLLECTING_EVIDENCE):
        state, actions = _continue_if_answered(replace(state, pending=state.pending - {event.node}))
        return state, (end, *actions)
    if state.phase is Phase.GATHERING and len(usable_nodes(state)) >= state.rules.nodes:
        state, actions = begin_if_gathered(state)  # no rank has started, and a spare can replace the node
        return state, (end, *actions)
    if state.phase is Phase.CHECKING:
        state, actions = _continue_after_checks(*lose_checked_node(state, event.node))
        return state, (end, *actions)
    if state.phase is not Phase.GATHERING and event.node not in state.members:
        return state, (end,)  # a spare node has no ranks
    state, actions = _stop(state, fault=loss_fault(state, event.node))
    return state, (end, *actions)


# Hangs, clocks and signals


def _handle_hang(state: State, event: RanksHung) -> Decision:
    if state.phase is not Phase.RUNNING:
        return state, ()
    waiting = tuple(node for node in state.members if state.nodes[node] is NodeState.READY)
    state = replace(state, phase=Phase.COLLECTING_EVIDENCE, pending=frozenset(waiting), hang=event, evidence=())
    state = replace(state, fault=Fault(sentence=event.sentence), incomplete=event.incomplete)
    return state, (Send(waiting, CollectEvidence(generation=state.generation)),)


def _handle_timeout(state: State, phase: Phase) -> Decision:
    if phase is not state.phase:
        return state, ()
    match phase:
        case Phase.GATHERING:
            return end_gathering(state)
        case Phase.BINDING:
            return _lose_node(state, AgentLost(state.members[0], Loss.HOST))
        case Phase.CHECKING:
            return _continue_after_checks(*end_checks(state))
        case Phase.DRAINING:
            return _stop(state, outcome=requeue_outcome(state, f"{requeue_reason(state)}; the other ranks were killed"))
        case Phase.COLLECTING_EVIDENCE:
            return _stop_ranks(with_hang_cause(state))
        case Phase.BACKING_OFF:
            return end_delay(state)
        case Phase.STOPPING:
            return _handle_stop_timeout(state)
        case Phase.RUNNING | Phase.ENDED:
            return state, ()


def _handle_stop_timeout(state: State) -> Decision:
    ends = tuple(EndAgent(node) for node in sorted(state.pending))
    state = replace(mark_hosts_lost(state, state.pending), pending=frozenset())
    state, actions = _after_stop(state)
    return state, (*ends, *actions)


def _give_notice(state: State) -> Decision:
    if state.notice:
        return state, ()
    if state.phase is Phase.BACKING_OFF:
        return end_delay(replace(state, notice=True))
    return replace(state, notice=True), (GiveNotice(state.members),) if state.phase in ACTIVE_PHASES else ()


def _handle_time_limit(state: State) -> Decision:
    if state.phase is Phase.DRAINING:  # some ranks asked for a requeue in time
        return _handle_timeout(state, Phase.DRAINING)
    return _stop(state, outcome=requeue_outcome(state, "the time limit was reached", TIME_LIMIT))


def _cancel(state: State, signum: int) -> Decision:
    """The first signal stops the ranks with a grace period, the second without."""
    outcome = Outcome(ending=Ending.CANCELLED, exit_code=128 + signum, reason=f"cancelled by {signal_name(signum)}")
    ending = state.outcome.ending if state.outcome is not None else None
    if ending is not Ending.SUCCEEDED:
        state = replace(state, outcome=outcome, skip_grace=ending is Ending.CANCELLED)
    if state.skip_grace and state.phase is Phase.STOPPING:
        return state, (Send(tuple(sorted(state.pending)), Stop(generation=state.generation, grace=0.0)),)
    return _stop(state)
