"""How the stand-in PBS is configured. Each time is shorter than the one measured on OpenPBS 23.06, which its comment gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """All times in seconds."""

    history: bool = False
    """Whether the server remembers finished jobs (job_history_enable); off is OpenPBS's default."""
    kill_delay: float = 10.0  # measured: about 10
    """From TERM to KILL. 0 kills all of a job when TERM ends its login shell."""
    walltime: str = "01:00:00"
    """The limit of a job that asks for none."""
    exiting: float = 0.2  # measured: 1 to 3
    """How long a job stays in state E after its script has ended."""
    lost_sister: float = 2.0  # measured: 30 to 55
    """How much longer a job stays in state E when one of its other hosts is lost."""
    node_down: float = 8.0  # measured: 85 to 95
    """When the server marks the node of a dead host down. Until then qdel hangs and qdel -W force is refused."""
    node_fail_requeue: float = 31.0  # default of the real one: 310
    """How long after that the server requeues a job whose first host is down."""
    discard: float = 20.0
    """When a host that came back ends what it still runs of a deleted job."""
