"""Ranks that leave so that another attempt can go on: which of them do, and how that is told. Pure."""

from __future__ import annotations

from echelon.exit_codes import REQUEUE
from echelon.node.faults import OUR_SIGNALS, fault_of
from echelon.node.messages import Exit
from echelon.node.situation import State


def asks_for_another_attempt(state: State, exit: Exit) -> bool:
    """By its exit code; or it died of the TERM with which the scheduler ends the job early, or of the KILL that srun
    and mpirun make of that."""
    return exit.code == REQUEUE or (state.warned and exit.code in OUR_SIGNALS)


def in_time(state: State) -> str:
    """Some rank asked to be requeued; one that failed on the way out is not passed over in silence."""
    failed = fault_of([exit for exit in state.exits.values() if not asks_for_another_attempt(state, exit)])
    everyone = len(state.exits) == len(state.members) * state.rules.procs_per_node
    who = "the ranks" if everyone else f"{len(state.exits)} ranks"
    why = "the scheduler is ending the job" if state.warned else f"{who} stopped in time"
    return why + (f", though {failed.sentence}" if failed is not None else "")
