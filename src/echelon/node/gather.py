"""Which nodes make up the next generation: those that are ready, then spares, then agents started anew, then fewer."""

from __future__ import annotations

from dataclasses import replace

from echelon.exit_codes import REQUEUE
from echelon.node.faults import Fault
from echelon.node.situation import (
    BindPort,
    Decision,
    Ending,
    Finish,
    Loss,
    NodeState,
    Outcome,
    Phase,
    StartAgent,
    State,
)


def ready(state: State) -> tuple[int, ...]:
    return tuple(node for node, what in sorted(state.nodes.items()) if what is NodeState.READY)


def alive(state: State) -> tuple[int, ...]:
    return tuple(node for node, what in sorted(state.nodes.items()) if what is not NodeState.LOST)


def with_node(state: State, node: int, what: NodeState) -> State:
    return replace(state, nodes={**state.nodes, node: what})


def begin_when_gathered(state: State) -> Decision:
    wanted = alive(state)[: state.rules.nodes]
    if state.phase is not Phase.GATHERING or not wanted or not set(wanted) <= set(ready(state)):
        return state, ()
    return begin(state, wanted)


def begin(state: State, members: tuple[int, ...]) -> Decision:
    state = replace(state, phase=Phase.BINDING, members=members)
    return state, (BindPort(members[0], state.generation),)


def finish(state: State, outcome: Outcome) -> Decision:
    silent = (node for node, loss in sorted(state.losses.items()) if loss is Loss.HOST)
    outcome = replace(outcome, lost_hosts=tuple(state.hosts[node] for node in silent if node in state.hosts))
    return replace(state, phase=Phase.ENDED, outcome=outcome), (Finish(outcome),)


def requeue(state: State, because: str, exit_code: int = REQUEUE, hint: str = "") -> Outcome:
    """The run goes on in another attempt, or fails where none is left. What the scheduler ends early costs none."""
    rules = state.rules
    if rules.requeued < rules.requeues or state.warned:
        return Outcome(ending=Ending.REQUEUED, exit_code=REQUEUE, reason=because, counts=not state.warned)
    used = f"all {rules.requeues} requeues are used" if rules.requeues else "no requeues were asked for"
    return Outcome(
        ending=Ending.FAILED,
        exit_code=exit_code,
        reason=f"{because}, and {used}",
        hint=hint or "echelon resume {run} goes on from here; --requeues N does so by itself",
    )


def regather(state: State, fault: Fault) -> Decision:
    """The nodes of the next generation: spares first, then agents started anew, then fewer nodes."""
    restart_first = [node for node, loss in sorted(state.losses.items()) if loss is Loss.PROCESS]
    restart_last = [node for node, loss in sorted(state.losses.items()) if loss is Loss.HOST]
    anew: list[int] = []
    for node in restart_first:
        if len(alive(state)) + len(anew) < state.rules.nodes:
            anew.append(node)
    if len(alive(state)) + len(anew) < state.rules.smallest and state.rules.host_comes_back:
        anew += restart_last[: state.rules.nodes - len(alive(state)) - len(anew)]
    if len(alive(state)) + len(anew) < state.rules.smallest:
        return finish(state, _too_few(state, fault))
    losses = {node: loss for node, loss in state.losses.items() if node not in anew}
    nodes = {**state.nodes, **dict.fromkeys(anew, NodeState.STARTING)}
    state = replace(state, phase=Phase.GATHERING, nodes=nodes, losses=losses)
    state, actions = begin_when_gathered(state)
    return state, (*(StartAgent(node) for node in anew), *actions)


def _too_few(state: State, fault: Fault) -> Outcome:
    lost = ", ".join(state.hosts.get(node, f"node {node}") for node in sorted(state.losses))
    because = f"{len(alive(state))} of {state.rules.nodes} nodes are left (lost: {lost})"
    hint = "--spare-nodes N keeps some in reserve, --min-nodes N goes on with fewer"
    if state.rules.host_comes_back:
        return Outcome(ending=Ending.FAILED, exit_code=1, reason=because, hint=hint, fault=fault)
    outcome = requeue(state, because, 1, f"{hint}, --requeues N waits for others")
    return replace(outcome, fault=fault) if outcome.ending is Ending.FAILED else outcome
