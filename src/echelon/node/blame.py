"""What ended a generation: a rank by itself, or the loss of a node, which its peers may have felt first."""

from __future__ import annotations

from echelon.node.faults import Fault, fault_of, is_consequence
from echelon.node.situation import Loss, State


def blamed(state: State) -> Fault:
    """A node that was lost explains the errors of those who waited for it."""
    fault = state.fault or fault_of(tuple(state.exits.values()))
    if fault is not None and (fault.exit is None or not is_consequence(fault.exit)):
        return fault
    lost = next((node for node in state.members if node in state.losses), None)
    if lost is not None:
        return loss_of(state, lost)
    return fault or Fault(sentence="the ranks stopped")


def loss_of(state: State, node: int) -> Fault:
    name, loss = state.hosts.get(node, f"node {node}"), state.losses[node]
    return Fault(sentence=f"{name} was lost: {loss.value}", host_lost=loss is Loss.HOST)
