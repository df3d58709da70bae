"""Decisions after a fault: the cause, whether another generation starts, and on which nodes. Pure."""

from __future__ import annotations

from dataclasses import replace

from echelon.diagnosis.causes import HINTS, RESTART, Cause
from echelon.diagnosis.hangs import HangCause, explain_hang, hang_failure
from echelon.diagnosis.history import Failure, with_failure
from echelon.diagnosis.policy import MORE_RESTARTS, RESUME, Action, Rule, next_action
from echelon.supervisor.gathering import choose_nodes, mark_hosts_lost, usable_nodes
from echelon.supervisor.outcomes import failure_outcome, finish
from echelon.supervisor.state import Decision, EndAgent, Phase, ReportFault, State
from echelon.wire.faults import Fault, Loss, fault_from_exits, is_consequence
from echelon.wire.messages import Heartbeat

GENERATIONS_WITHOUT_PROGRESS = 3
STEPS_OF_PROGRESS = 100
"""This many steps in one generation count as progress even without a checkpoint."""
NO_DEATH = Rule(action=Action.RESTART, sentence="possibly temporary; restarting", change=MORE_RESTARTS)
"""For ranks that did not start, a store that died or a launcher that failed."""


def find_cause(state: State) -> Fault:
    """The fault that caused the others.

    A lost node explains the errors of ranks that waited for it. A step that ended for a reason other than its node
    explains the losses of other nodes: their srun often exits without a message.
    """
    fault = state.fault or fault_from_exits(tuple(state.exits.values()))
    lost = [node for node in state.members if node in state.losses]
    ended = [node for node in lost if state.losses[node] is Loss.STEP]
    if ended and fault in [loss_fault(state, node) for node in lost]:
        return loss_fault(state, ended[0])
    if fault is not None and (fault.exit is None or not is_consequence(fault.exit)):
        return fault
    if lost:
        return loss_fault(state, (ended or lost)[0])
    return fault or UNKNOWN_FAULT


UNKNOWN_FAULT = Fault(sentence="the ranks stopped")
CAUSE_OF_LOSS = {Loss.HOST: Cause.NODE_FAILURE, Loss.PROCESS: Cause.AGENT_DIED}


def loss_fault(state: State, node: int) -> Fault:
    name, loss = state.host(node), state.losses[node]
    reason, host_lost = state.reasons.get(node), loss is Loss.HOST
    if reason is None or loss is Loss.PROCESS or reason.host_lost is not host_lost:
        reason = Fault(sentence=f"lost {name}: {loss.value}", host_lost=host_lost)
    cause = CAUSE_OF_LOSS.get(loss)
    if cause is None or reason.failure is not None:
        return reason
    return replace(reason, failure=Failure(cause=cause, host=name), cause=cause.value, hint=HINTS[cause])


def with_hang_cause(state: State) -> State:
    """Replaces the fault of a hang by the verdict on the collected evidence."""
    hang = state.hang
    if hang is None or hang.incomplete:
        return state
    if not state.evidence:
        return replace(state, fault=Fault(sentence=hang.sentence, failure=Failure(cause=Cause.HANG, step=state.step)))
    ranks = [replace(one, idle_seconds=hang.idle_by_rank.get(one.rank, hang.idle_seconds)) for one in state.evidence]
    verdict = explain_hang(ranks, idle_seconds=hang.idle_seconds, finished=hang.finished)
    known = verdict.cause is not HangCause.UNKNOWN
    head = hang.sentence.partition(": ")[0]  # "no progress for 60 s", and how the timeout was chosen
    sentence = f"{head}: {verdict.sentence}" if known else hang.sentence
    fault = Fault(
        sentence=sentence,
        failure=hang_failure(verdict, step=state.step),
        cause=f"hang_{verdict.cause.value}",
        ranks=verdict.culprits,
        details=verdict.details,
        hint=verdict.hint,
    )
    return replace(state, fault=fault)


def with_heartbeat(state: State, heartbeat: Heartbeat) -> State:
    if state.phase is not Phase.RUNNING:
        return state
    for sample in heartbeat.samples:
        state = with_progress(state, sample.step, sample.committed)
    return state


def with_progress(state: State, step: int | None, committed: int | None, *, active: bool = False) -> State:
    return replace(
        state,
        first_step=step if state.first_step is None else state.first_step,
        step=_largest(state.step, step),
        committed=_largest(state.committed, committed),
        active=state.active or active,
    )


def _largest(*steps: int | None) -> int | None:
    return max((step for step in steps if step is not None), default=None)


def count_progress(state: State) -> State:
    """Records whether the ended generation made progress. Ignores a generation in which some ranks never started."""
    if state.incomplete:
        return state
    idle = 0 if _made_progress(state) else state.idle_generations + 1
    best_step = _largest(state.best_step, state.step)
    best_committed = _largest(state.best_committed, state.committed)
    return replace(state, best_step=best_step, best_committed=best_committed, idle_generations=idle)


def _made_progress(state: State) -> bool:
    best_committed = _largest(state.best_committed, state.committed)
    if best_committed is not None:
        return best_committed != state.best_committed
    if state.step is None:
        return state.active
    steps = state.step - (state.first_step or 0) + 1
    return state.best_step is None or state.step > state.best_step or steps >= STEPS_OF_PROGRESS


def recover(state: State, fault: Fault) -> Decision:
    """Starts the next generation, at once or after a delay, or ends the run."""
    left = state.rules.restarts - state.restarts_used
    rule = rule_for(state, fault)
    state, ends = exclude_node(state, rule)
    is_free = rule.restarts and _uses_no_restart(state, fault, left)
    rule = rule if is_free else limit_restarts(state, rule, fault, left)
    fault = replace(fault, rule=rule.sentence, change=rule.change)
    state = state if fault.failure is None else replace(state, history=with_failure(state.history, fault.failure))
    if not rule.restarts:
        report = ReportFault(state.generation, fault, max(left, 0), state.step)
        state, actions = finish(state, failure_outcome(fault, rule.sentence, final_hint(state, fault)))
        return state, (*ends, report, *actions)
    report = ReportFault(state.generation, fault, max(left, 0) if is_free else left - 1, state.step)
    state = _roll_back(replace(state, restarts_used=state.restarts_used + (not is_free)), rule)
    state = _mark_hosts_lost(state) if is_free and left <= 0 else state
    state, actions = _start_again(_next_generation(state), fault, rule.delay)
    return state, (*ends, report, *actions)


def _roll_back(state: State, rule: Rule) -> State:
    """The next generations start from an older checkpoint, so progress counts from there."""
    if rule.action is not Action.ROLL_BACK:
        return state
    return replace(state, idle_generations=0, best_step=None, best_committed=None)


def _start_again(state: State, fault: Fault, delay: float) -> Decision:
    if delay <= 0 or state.notice:
        return choose_nodes(state, fault)
    return replace(state, phase=Phase.BACKING_OFF, delay=delay, fault=fault), ()


def end_delay(state: State) -> Decision:
    """Starts the next generation after the delay, or earlier if the attempt ends soon."""
    fault = state.fault or UNKNOWN_FAULT
    return choose_nodes(replace(state, fault=None, delay=0.0), fault)


def _uses_no_restart(state: State, fault: Fault, left: int) -> bool:
    """Whether the recovery uses no restart.

    A lost node uses none if the run continues without it, here or in another attempt. If only the agent died, the node
    gets a new agent while restarts are left. A step that ended for a reason other than its node, such as memory, is an
    ordinary fault, even if other nodes were lost with it.
    """
    lost = {state.losses[node] for node in state.members if node in state.losses}
    if Loss.STEP in lost or (not lost and not fault.host_lost):
        return False
    if state.rules.lost_host_is_reusable and len(usable_nodes(state)) < state.rules.min_nodes:
        return False
    return left <= 0 or fault.host_lost or Loss.HOST in lost


def _mark_hosts_lost(state: State) -> State:
    """Marks the hosts of dead agents as lost. A node whose step ended stays available to replace another node."""
    losses = {node: Loss.STEP if loss is Loss.STEP else Loss.HOST for node, loss in state.losses.items()}
    return replace(state, losses=losses)


def _next_generation(state: State) -> State:
    """Starts the next generation: resets everything that belongs to the last one."""
    return replace(
        state,
        generation=state.generation + 1,
        members=(),
        exits={},
        hang=None,
        evidence=(),
        fault=None,
        step=None,
        first_step=None,
        committed=None,
        active=False,
        incomplete=False,
    )


# The rule of the cause, and the limits of the job


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
