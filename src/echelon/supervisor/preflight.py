"""The gate before the first generation (`--preflight`): checks all nodes, and leaves out those that fail. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.supervisor.outcomes import finish, requeue_outcome
from echelon.supervisor.state import (
    CheckNodes,
    Decision,
    EndAgent,
    Ending,
    NodeState,
    Outcome,
    Phase,
    State,
    Warn,
)
from echelon.wire.faults import Loss
from echelon.wire.messages import MeetingOpened, NodeChecked

if TYPE_CHECKING:
    from echelon.doctor.model import Finding

HINT = "echelon doctor checks the nodes; --spare-nodes N reserves replacements; --exclude leaves nodes out"


def needs_checks(state: State) -> bool:
    return state.rules.preflight is not None and not state.checked


def begin_checks(state: State, nodes: tuple[int, ...]) -> Decision:
    """Starts the check on the first node. The others follow when its coordinator listens."""
    state = replace(state, phase=Phase.CHECKING, checking=nodes, pending=frozenset(nodes), checked=True)
    return state, (CheckNodes(nodes[:1], nodes, state.addresses.get(nodes[0], ""), 0),)


def open_meeting(state: State, node: int, opened: MeetingOpened) -> Decision:
    if state.phase is not Phase.CHECKING or node != state.checking[0]:
        return state, ()
    state = replace(state, meeting=True)
    return state, (CheckNodes(state.checking[1:], state.checking, state.addresses.get(node, ""), opened.port),)


def record_check(state: State, node: int, checked: NodeChecked) -> Decision:
    """Ends the checks when all nodes have answered. If the first one ends before it waits for the others, only its own
    answer counts: the others were not checked."""
    if state.phase is not Phase.CHECKING:
        return state, ()
    state = replace(state, reports={**state.reports, node: checked.output}, pending=state.pending - {node})
    if node == state.checking[0] and not state.meeting:
        state = replace(state, checking=(node,), pending=frozenset())
    return end_checks(state) if not state.pending else (state, ())


def lose_checked_node(state: State, node: int) -> Decision:
    state = replace(state, pending=state.pending - {node})
    return end_checks(state) if not state.pending else (state, ())


def end_checks(state: State) -> Decision:
    """Marks failing nodes as lost and returns to gathering. Nodes without an answer fail."""
    from echelon.doctor.judge import exclude_list  # only here and below: few runs have a preflight check
    from echelon.doctor.model import Severity

    findings = _judge(state)
    names = exclude_list(findings)
    failed = tuple(node for node in state.checking if state.host(node) in names)
    state = replace(
        state,
        phase=Phase.GATHERING,
        pending=frozenset(),
        nodes={**state.nodes, **dict.fromkeys(failed, NodeState.LOST)},
        losses={**state.losses, **dict.fromkeys(failed, Loss.HOST)},
    )
    warnings = tuple(Warn(sentence(one)) for one in findings if one.severity is not Severity.NOTE)
    ends = tuple(EndAgent(node) for node in failed)
    left = sum(node_state is not NodeState.LOST for node_state in state.nodes.values())
    if failed:
        warnings = (*warnings, Warn(_summary(state, failed)))
    if left >= state.rules.min_nodes:
        return state, (*warnings, *ends)
    state, actions = finish(state, _too_few_nodes(state, findings, left))
    return state, (*warnings, *ends, *actions)


def _judge(state: State) -> list[Finding]:
    """The findings about nodes that are still connected."""
    from echelon.doctor.judge import judge_heard, parse_lines
    from echelon.doctor.model import Plan

    hosts = [state.host(node) for node in state.checking]
    heard = {
        state.host(node): parse_lines(state.reports.get(node, ""), hosts)
        for node in state.checking
        if state.nodes.get(node) is not NodeState.LOST
    }
    return judge_heard(heard, hosts, state.rules.preflight or Plan())


def sentence(finding: Finding) -> str:
    parts = f"preflight: {finding.node}: {finding.what}" if finding.node else f"preflight: {finding.what}"
    return f"{parts} ({finding.why})" if finding.why else parts


def _summary(state: State, failed: Sequence[int]) -> str:
    """Names the excluded nodes and the spare nodes that replace them."""
    passed = [node for node in state.checking if node not in failed]
    spares = [node for node in passed[: state.rules.nodes] if node not in state.checking[: state.rules.nodes]]
    excluded, used = (", ".join(state.host(node) for node in nodes) for nodes in (failed, spares))
    return f"preflight: excluded {excluded}; {f'replaced by {used}' if used else 'no spare node replaces it'}"


def _too_few_nodes(state: State, findings: Sequence[Finding], left: int) -> Outcome:
    from echelon.doctor.model import Severity

    first = next((one for one in findings if one.severity is Severity.ERROR), None)
    cause = sentence(first) if first is not None else "preflight: nodes were lost"
    reason = f"{cause}; {left} of {state.rules.nodes} nodes are left"
    if state.rules.lost_host_is_reusable:
        return Outcome(ending=Ending.FAILED, exit_code=1, reason=reason, hint=HINT)
    return requeue_outcome(state, reason, 1, f"{HINT}; --requeues N requeues the job on other nodes")
