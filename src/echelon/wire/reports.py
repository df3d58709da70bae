"""Reports that starters make and agents pass on unchanged. Apart from the other messages, which need more imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PortBound:
    generation: int
    port: int
    store_is_up: bool
    launcher_port: int = 0
    """A second port, if the launcher's own processes need one for their rendezvous."""


@dataclass(frozen=True, kw_only=True)
class Started:
    generation: int
    rank: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """An uncaught exception, as the rank recorded it."""

    time: float
    type: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class StoreDied:
    """The rendezvous store died while the ranks may still need it."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class LauncherFailed:
    """The launcher did not start the ranks, or exited before them."""

    generation: int
    sentence: str


@dataclass(frozen=True, kw_only=True)
class FatalNodeProblem:
    """A problem of this node that a restart does not fix, in the parts of an error message."""

    what: str
    why: str
    hint: str
