"""The outcomes of an attempt. Pure."""

from __future__ import annotations

import signal
from dataclasses import replace

from echelon.errors import REQUEUE, EnvironmentProblem
from echelon.supervisor.state import CutOff, Decision, Ending, Finish, Outcome, Phase, State
from echelon.wire.faults import STOP_SIGNALS, Fault, Loss, fault_from_exits
from echelon.wire.messages import Exit
from echelon.wire.reports import FatalNodeProblem


def finish(state: State, outcome: Outcome) -> Decision:
    silent = (node for node, loss in sorted(state.losses.items()) if loss is Loss.HOST)
    outcome = replace(
        outcome,
        lost_hosts=tuple(state.hosts[node] for node in silent if node in state.hosts),
        step=state.best_step if state.step is None else state.step,
        saved_step=state.best_committed if state.committed is None else state.committed,
    )
    return replace(state, phase=Phase.ENDED, outcome=outcome), (Finish(outcome),)


def node_problem_outcome(host: str, trouble: FatalNodeProblem) -> Outcome:
    """The outcome for a problem that a restart does not fix."""
    return Outcome(
        ending=Ending.FAILED,
        exit_code=EnvironmentProblem.exit_code,
        reason=f"{trouble.what} (on {host}): {trouble.why}",
        hint=trouble.hint,
    )


def cut_off_outcome(state: State, cut: CutOff) -> Outcome:
    """The outcome on a node that is cut off. The other nodes continue without it, so it must end everything here."""
    lost = ", ".join(state.host(node) for node in cut.lost)
    reason = f"{cut.host} is cut off: neither {lost} nor the scheduler answers ({cut.problem})"
    return Outcome(ending=Ending.REQUEUED, exit_code=REQUEUE, reason=reason, uses_requeue=False)


def requeue_outcome(state: State, reason: str, exit_code: int = REQUEUE, hint: str = "") -> Outcome:
    """A requeue, or a failure if no requeues are left. A preemption does not use up a requeue."""
    rules = state.rules
    if rules.requeues_used < rules.requeues or state.preempted:
        return Outcome(ending=Ending.REQUEUED, exit_code=REQUEUE, reason=reason, uses_requeue=not state.preempted)
    used = f"all {rules.requeues} requeues are used" if rules.requeues else "--requeues is not set"
    return Outcome(
        ending=Ending.FAILED,
        exit_code=exit_code,
        reason=f"{reason}; {used}",
        hint=hint or "echelon resume {run} continues it; --requeues N requeues it automatically",
    )


def requests_requeue(state: State, exit: Exit) -> bool:
    """Whether a rank asks for a requeue by its exit code, or was ended by a preemption.

    In a preemption a rank dies of the scheduler's SIGTERM, or of the SIGKILL that srun and mpirun turn it into.
    """
    return exit.code == REQUEUE or (state.preempted and exit.code in STOP_SIGNALS)


def requeue_reason(state: State) -> str:
    """The reason for a requeue that a rank asked for. It also names a rank that failed while stopping."""
    failed = fault_from_exits([exit for exit in state.exits.values() if not requests_requeue(state, exit)])
    everyone = len(state.exits) == len(state.members) * state.rules.procs_per_node
    who = "the ranks" if everyone else f"{len(state.exits)} ranks"
    why = f"the scheduler is ending the job{_term_deaths(state)}" if state.preempted else f"{who} stopped in time"
    return why + (f"; {failed.sentence}" if failed is not None else "")


def _term_deaths(state: State) -> str:
    """A clause with the number of ranks that died of SIGTERM; empty if none did.

    A scheduler that preempts a job sends SIGTERM to all its processes at once, before echelon gives notice.
    """
    count = sum(exit.code == -signal.SIGTERM for exit in state.exits.values())
    ranks, were = ("1 rank", "was") if count == 1 else (f"{count} ranks", "were")
    return f"; {ranks} without a SIGTERM handler {were} killed by its SIGTERM" if count else ""


def failure_outcome(fault: Fault, reason: str, hint: str = "") -> Outcome:
    return Outcome(ending=Ending.FAILED, exit_code=fault.exit_code, reason=reason, fault=fault, hint=hint)
