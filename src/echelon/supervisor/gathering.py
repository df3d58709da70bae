"""The nodes of a generation: waits for their agents, and replaces lost nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from echelon.diagnosis.history import NO_HISTORY, History, with_attempt
from echelon.supervisor.outcomes import finish, requeue_outcome
from echelon.supervisor.preflight import begin_checks, needs_checks
from echelon.supervisor.state import (
    AgentLost,
    Decision,
    EndAgent,
    Ending,
    NodeState,
    Outcome,
    Phase,
    Rules,
    Send,
    StartAgent,
    State,
)
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import BindPort


def initial_decision(rules: Rules, history: History = NO_HISTORY) -> Decision:
    """The first decision of an attempt: start an agent on every node, spare nodes included."""
    numbers = range(rules.nodes + rules.spare_nodes)
    state = State(rules=rules, nodes=dict.fromkeys(numbers, NodeState.STARTING), history=with_attempt(history))
    return state, tuple(StartAgent(node) for node in numbers)


def ready_nodes(state: State) -> tuple[int, ...]:
    return tuple(node for node, node_state in sorted(state.nodes.items()) if node_state is NodeState.READY)


def usable_nodes(state: State) -> tuple[int, ...]:
    return tuple(node for node, node_state in sorted(state.nodes.items()) if node_state is not NodeState.LOST)


def with_node_state(state: State, node: int, node_state: NodeState) -> State:
    return replace(state, nodes={**state.nodes, node: node_state})


def mark_hosts_lost(state: State, nodes: Iterable[int]) -> State:
    lost = tuple(nodes)
    return replace(
        state,
        nodes={**state.nodes, **dict.fromkeys(lost, NodeState.LOST)},
        losses={**state.losses, **dict.fromkeys(lost, Loss.HOST)},
    )


def mark_lost(state: State, event: AgentLost) -> State:
    """Marks the node as lost, and records the kind of loss and its reason."""
    loss = Loss.HOST if _is_host_lost(state, event) else event.loss
    reasons = {**state.reasons, event.node: event.why} if event.why is not None else state.reasons
    state = with_node_state(state, event.node, NodeState.LOST)
    return replace(state, losses={**state.losses, event.node: loss}, reasons=reasons)


def _is_host_lost(state: State, event: AgentLost) -> bool:
    """Whether the agent died before, and the new agent died before it connected, for no reason other than the node."""
    is_restart = state.phase is Phase.GATHERING and state.generation > 0
    return is_restart and state.nodes.get(event.node) is NodeState.STARTING and event.loss is not Loss.STEP


def begin_if_gathered(state: State) -> Decision:
    wanted = usable_nodes(state) if needs_checks(state) else usable_nodes(state)[: state.rules.nodes]
    if state.phase is not Phase.GATHERING or not wanted or not set(wanted) <= set(ready_nodes(state)):
        return state, ()
    return _check_or_begin(state, wanted)


def _check_or_begin(state: State, nodes: tuple[int, ...]) -> Decision:
    return begin_checks(state, nodes) if needs_checks(state) else begin_generation(state, nodes[: state.rules.nodes])


def begin_generation(state: State, members: tuple[int, ...]) -> Decision:
    state = replace(state, phase=Phase.BINDING, members=members)
    return state, (Send((members[0],), BindPort(generation=state.generation)),)


def end_gathering(state: State) -> Decision:
    """Marks nodes that have not connected as lost, and starts with the others if they are enough."""
    absent = [node for node, node_state in sorted(state.nodes.items()) if node_state is NodeState.STARTING]
    state = mark_hosts_lost(state, absent)
    ends = tuple(EndAgent(node) for node in absent)
    present = ready_nodes(state)
    if len(present) >= state.rules.min_nodes:
        state, actions = _check_or_begin(state, present)
        return state, (*ends, *actions)
    names = ", ".join(state.host(node) for node in absent)
    reason = f"{names} did not connect within --join-timeout ({state.rules.join_timeout:g} s)"
    hint = "read job.out in the run's folder, or set a longer --join-timeout"
    failed = Outcome(ending=Ending.FAILED, exit_code=1, reason=reason, hint=hint)
    outcome = failed if state.rules.lost_host_is_reusable else requeue_outcome(state, reason, 1, hint)
    state, actions = finish(state, outcome)
    return state, (*ends, *actions)


def choose_nodes(state: State, fault: Fault) -> Decision:
    """Chooses the nodes of the next generation: spares first, then nodes with a new agent, then fewer nodes."""
    restart_first = [node for node, loss in sorted(state.losses.items()) if loss is not Loss.HOST]
    restart_last = [node for node, loss in sorted(state.losses.items()) if loss is Loss.HOST]
    restarted: list[int] = []
    for node in restart_first:
        if len(usable_nodes(state)) + len(restarted) < state.rules.nodes:
            restarted.append(node)
    if len(usable_nodes(state)) + len(restarted) < state.rules.min_nodes and state.rules.lost_host_is_reusable:
        restarted += restart_last[: state.rules.nodes - len(usable_nodes(state)) - len(restarted)]
    if len(usable_nodes(state)) + len(restarted) < state.rules.min_nodes:
        return finish(state, _too_few_nodes(state, fault))
    losses = {node: loss for node, loss in state.losses.items() if node not in restarted}
    nodes = {**state.nodes, **dict.fromkeys(restarted, NodeState.STARTING)}
    state = replace(state, phase=Phase.GATHERING, nodes=nodes, losses=losses)
    state, actions = begin_if_gathered(state)
    return state, (*(StartAgent(node) for node in restarted), *actions)


def _too_few_nodes(state: State, fault: Fault) -> Outcome:
    lost = ", ".join(state.host(node) for node in sorted(state.losses))
    reason = f"{len(usable_nodes(state))} of {state.rules.nodes} nodes are left (lost: {lost})"
    hint = "--spare-nodes N reserves replacement nodes; --min-nodes N continues with fewer nodes"
    if state.rules.lost_host_is_reusable:
        return Outcome(ending=Ending.FAILED, exit_code=1, reason=reason, hint=hint, fault=fault)
    outcome = requeue_outcome(state, reason, 1, f"{hint}; --requeues N requeues the job on other nodes")
    return replace(outcome, fault=fault) if outcome.ending is Ending.FAILED else outcome
