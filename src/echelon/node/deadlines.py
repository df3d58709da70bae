"""How long the supervisor waits in each phase: every wait has an end."""

from __future__ import annotations

from echelon.job import Policies
from echelon.node.situation import Phase

WINDING_SECONDS = 30.0
DUMPING_SECONDS = 10.0
STOPPING_SECONDS = 20.0


def phase_limit(phase: Phase, policies: Policies, seconds_left: float) -> float | None:
    """`seconds_left` are those until the end of the attempt; None for a phase that may last. Pure."""
    match phase:
        case Phase.GATHERING | Phase.BINDING:
            return policies.join_timeout.total_seconds()
        case Phase.WINDING:
            return WINDING_SECONDS if seconds_left == float("inf") else max(WINDING_SECONDS, seconds_left)
        case Phase.DUMPING:
            return DUMPING_SECONDS
        case Phase.STOPPING:
            return policies.grace.total_seconds() + STOPPING_SECONDS
        case Phase.RUNNING | Phase.ENDED:
            return None
