"""Describes a fault in one sentence: the first failure by time that is not a consequence of another failure."""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.diagnosis.death_evidence import DeathEvidence
from echelon.diagnosis.history import Failure, failure_of
from echelon.record import record
from echelon.wire.messages import Exit

if TYPE_CHECKING:
    from echelon.diagnosis.causes import Death

STOP_SIGNALS = (-signal.SIGTERM, -signal.SIGKILL)


# Errors of ranks after a peer has exited: a consequence, never the cause.
PEER_EXIT_ERRORS = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|remote process exited|DistNetworkError|DistBackendError"
    r"|NCCL error|Socket (Timeout|closed)|peer .*(closed|left)|ncclRemoteError|Timed out waiting",
    re.IGNORECASE,
)


class Loss(enum.Enum):
    PROCESS = "its agent died"  # the host may still work
    HOST = "its host does not answer"
    STEP = "its step was ended"  # for a reason other than the node, such as memory


@record
class Fault:
    """A cause that ended a generation."""

    sentence: str
    exit: Exit | None = None
    failure: Failure | None = None
    """The same for the rules that decide what happens next. None if the cause is no death."""
    host_lost: bool = False
    cause: str = ""
    """The value of a cause in `echelon.diagnosis`, if it is known."""
    ranks: tuple[int, ...] = ()
    """The ranks to blame for a hang."""
    details: tuple[str, ...] = ()
    """Lines for `echelon why`."""
    hint: str = ""
    """What to type next, if this fault has a specific answer."""
    rule: str = ""
    """The rule that decided what happens next."""
    change: str = ""
    """What would change that decision."""

    @property
    def exit_code(self) -> int:
        if self.exit is None or (self.exit.error is not None and self.exit.code in STOP_SIGNALS):
            return 1  # it raised an exception first; echelon's signal ended it afterwards
        return shell_code(self.exit.code)


def shell_code(code: int) -> int:
    """The exit code as shells report it: 128 plus the signal number for a negative code."""
    return 128 - code if code < 0 else code


def exit_death(exit: Exit) -> Death:
    """The cause of a rank's death, with a sentence and a hint."""
    from echelon.diagnosis.deaths import explain_death  # compiles many patterns: only after a failure

    return explain_death(evidence_of(exit), exit.rank, exit.host)


def evidence_of(exit: Exit) -> DeathEvidence:
    """The evidence of the node, with the exception or the text of sys.exit."""
    evidence = exit.evidence or DeathEvidence(code=exit.code)
    error = exit.error
    if error is None:
        return evidence
    if error.type == SystemExit.__name__:
        return replace(evidence, exit_text=error.message)
    return replace(evidence, error_type=error.type, error_message=error.message, traceback=error.traceback)


def follows_peer_exit(exit: Exit) -> bool:
    return exit.error is not None and bool(PEER_EXIT_ERRORS.search(f"{exit.error.type}: {exit.error.message}"))


def is_consequence(exit: Exit) -> bool:
    """Whether the exit is an echo, or may come from a signal of echelon."""
    return follows_peer_exit(exit) or (exit.error is None and exit.code in STOP_SIGNALS)


def failure_time(exit: Exit) -> float:
    return exit.error.time if exit.error is not None else exit.time


def was_stopped(exit: Exit) -> bool:
    """Whether echelon ended the rank after the failure of another one. Agents collect no evidence about that."""
    return exit.error is None and exit.code in STOP_SIGNALS and exit.evidence is None


def root_cause(exits: Iterable[Exit]) -> Exit | None:
    """The earliest failure that is neither an echo nor caused by the stop; without one, the earliest echo.

    An error that looks like an echo is the cause if nothing else failed: a service that refuses connections, or a
    collective that timed out. The times of several hosts may differ, so a rank that was stopped never comes first.
    """
    failures = sorted((exit for exit in exits if exit.code != 0), key=failure_time)
    own = [exit for exit in failures if not was_stopped(exit)]
    real = [exit for exit in own if not follows_peer_exit(exit)]
    return next(iter((*real, *own, *failures)), None)


def fault_from_exits(exits: Sequence[Exit]) -> Fault | None:
    exit = root_cause(exits)
    if exit is None:
        return None
    death = exit_death(exit)
    return Fault(
        sentence=death.sentence,
        exit=exit,
        failure=replace(
            failure_of(death, step=exit.step, lines=exit.lines, restored=exit.restored, host=exit.host),
            restored_name=exit.restored_name,
        ),
        cause=death.cause.value,
        details=death.details,
        hint=death.hint,
    )
