"""After a fault: is another generation worth it, and what does it start from?"""

from __future__ import annotations

from dataclasses import replace

from echelon.node.faults import Fault
from echelon.node.gather import alive, finish, regather
from echelon.node.situation import Decision, Ending, Loss, Outcome, ReportFault, State

GENERATIONS_WITHOUT_PROGRESS = 3


def further(state: State, step: int | None, committed: int | None, *, moved: bool) -> State:
    return replace(
        state,
        step=_furthest(state.step, step),
        committed=_furthest(state.committed, committed),
        moved=state.moved or moved,
    )


def _furthest(*steps: int | None) -> int | None:
    return max((step for step in steps if step is not None), default=None)


def tally(state: State) -> State:
    """Whether the generation that has ended got anywhere."""
    best_step = _furthest(state.best_step, state.step)
    best_committed = _furthest(state.best_committed, state.committed)
    if best_committed is not None:
        got_further = best_committed != state.best_committed
    else:
        got_further = state.moved if state.step is None else best_step != state.best_step
    idle = 0 if got_further else state.idle_generations + 1
    return replace(state, best_step=best_step, best_committed=best_committed, idle_generations=idle)


def recover(state: State, fault: Fault) -> Decision:
    left = state.rules.restarts - state.restarts_used
    if _is_free(state, fault, left):
        report = ReportFault(state.generation, fault, max(left, 0))
        state, actions = regather(_fresh(state if left > 0 else _without_the_lost(state)), fault)
        return state, (report, *actions)
    refusal = _refusal(state, fault, left)
    state = replace(state, last_signature=fault.signature)
    if refusal is not None:
        report = ReportFault(state.generation, fault, max(left, 0))
        state, actions = finish(state, replace(refusal, fault=fault))
        return state, (report, *actions)
    state = replace(state, restarts_used=state.restarts_used + 1)
    report = ReportFault(state.generation, fault, left - 1)
    state, actions = regather(_fresh(state), fault)
    return state, (report, *actions)


def _is_free(state: State, fault: Fault, left: int) -> bool:
    """A lost node costs no restart where the run goes on without it, here or in another attempt: nodes get fewer each
    time. One whose agent alone died is given another while there are restarts."""
    lost = {state.losses[node] for node in state.members if node in state.losses}
    if not lost and not fault.host_lost:
        return False
    if state.rules.host_comes_back and len(alive(state)) < state.rules.smallest:
        return False
    return left <= 0 or fault.host_lost or Loss.HOST in lost


def _without_the_lost(state: State) -> State:
    return replace(state, losses=dict.fromkeys(state.losses, Loss.HOST))


def _fresh(state: State) -> State:
    """The next generation knows nothing of what the last one did."""
    return replace(
        state,
        generation=state.generation + 1,
        members=(),
        exits={},
        fault=None,
        step=None,
        committed=None,
        moved=False,
    )


def _refusal(state: State, fault: Fault, left: int) -> Outcome | None:
    """Why there will be no further generation, if there will be none."""
    if fault.signature is not None and fault.signature == state.last_signature:
        return _failed(fault, "the same exception came twice at the same place, so another start would not help")
    if state.idle_generations >= GENERATIONS_WITHOUT_PROGRESS and left > 0:
        return _failed(fault, f"{state.idle_generations} generations in a row made no progress")
    if left <= 0:
        used = state.rules.restarts
        reason = f"all {used} restarts are used" if used else "no restarts were asked for"
        return _failed(fault, reason, "" if used else "--restarts N starts all ranks again after a fault")
    return None


def _failed(fault: Fault, reason: str, hint: str = "") -> Outcome:
    return Outcome(ending=Ending.FAILED, exit_code=fault.exit_code, reason=reason, fault=fault, hint=hint)
