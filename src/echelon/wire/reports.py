"""Reports that starters make and agents pass on unchanged. Apart from the other messages, which need more imports."""

from __future__ import annotations

from echelon.record import record


@record
class PortBound:
    generation: int
    port: int
    store_is_up: bool
    launcher_port: int = 0
    """A second port, if the launcher's own processes need one for their rendezvous."""


@record
class Started:
    generation: int
    rank: int
    pid: int


@record
class ErrorRecord:
    """An uncaught exception, as the rank recorded it."""

    time: float
    type: str
    message: str
    traceback: str


@record
class StoreDied:
    """The rendezvous store died while the ranks may still need it."""

    generation: int


@record
class LauncherFailed:
    """The launcher did not start the ranks, or exited before them."""

    generation: int
    sentence: str


@record
class FatalNodeProblem:
    """A problem of this node that a restart does not fix, in the parts of an error message."""

    what: str
    why: str
    hint: str
