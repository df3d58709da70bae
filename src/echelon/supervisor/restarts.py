"""Whether a generation follows a fault: the rule of its cause, and the limits of the job. Pure."""

from __future__ import annotations

from echelon.diagnosis.causes import RESTART
from echelon.diagnosis.policy import MORE_RESTARTS, RESUME, Action, Rule, next_action
from echelon.supervisor.gathering import mark_hosts_lost
from echelon.supervisor.state import EndAgent, State
from echelon.wire.faults import Fault

GENERATIONS_WITHOUT_PROGRESS = 3
STEPS_OF_PROGRESS = 100
"""This many steps in one generation count as progress even without a checkpoint."""
NO_DEATH = Rule(action=Action.RESTART, sentence="possibly temporary; restarting", change=MORE_RESTARTS)
"""For ranks that did not start, a store that died or a launcher that failed."""


def rule_for(state: State, fault: Fault) -> Rule:
    """The rule of the cause. The failures of all attempts count."""
    return NO_DEATH if fault.failure is None else next_action(fault.failure, state.history)


def limit_restarts(state: State, rule: Rule, fault: Fault, left: int) -> Rule:
    """The same rule, or one that stops the run because of --restarts or because it makes no progress."""
    if not rule.restarts:
        return rule
    is_stuck = state.idle_generations >= GENERATIONS_WITHOUT_PROGRESS
    if is_stuck and left > 0 and not rule.is_trial:  # an older checkpoint may help
        sentence = f"{state.idle_generations} generations in a row made no progress"
        change = f"a new saved step, or {STEPS_OF_PROGRESS} steps without a checkpoint, counts as progress"
        return Rule(action=Action.STOP, sentence=sentence, change=change)
    if left <= 0:
        used = state.rules.restarts
        sentence = f"all {used} restarts are used" if used else "--restarts is not set"
        return Rule(action=Action.STOP, sentence=sentence, change=_change(rule, fault))
    return rule


def _change(rule: Rule, fault: Fault) -> str:
    """What would change a stop for lack of restarts. More restarts do not help against a mistake in the script."""
    if rule.action is Action.EXCLUDE_NODE:
        return rule.change
    return MORE_RESTARTS if not fault.hint or "--restarts" in fault.hint else f"correct the cause, then {RESUME}"


def final_hint(state: State, fault: Fault) -> str:
    """The hint of a fault that ends the run. Without advice about --restarts if the job already has it."""
    hint = fault.hint or RESTART
    if not state.rules.restarts:
        return hint
    return "; ".join(part for part in hint.split("; ") if "--restarts" not in part)


def exclude_node(state: State, rule: Rule) -> tuple[State, tuple[EndAgent, ...]]:
    """Marks the node that the rule excludes as lost, so that a spare node or another attempt replaces it."""
    nodes = [node for node in state.members if rule.host and state.host(node) == rule.host]
    if rule.action is not Action.EXCLUDE_NODE or not nodes:
        return state, ()
    return mark_hosts_lost(state, nodes), tuple(EndAgent(node) for node in nodes if node not in state.losses)
