"""What went wrong, told as one sentence: the first failure by time, and not one of its echoes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from echelon.node.messages import Exit

OUR_SIGNALS = (-signal.SIGTERM, -signal.SIGKILL)

# What ranks say when a peer has gone: a consequence, never the cause.
ECHOES = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|remote process exited|DistNetworkError|DistBackendError"
    r"|NCCL error|Socket (Timeout|closed)|peer .*(closed|left)|ncclRemoteError|Timed out waiting",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that ended a generation."""

    sentence: str
    exit: Exit | None = None
    signature: str | None = None
    """Equal for the same exception at the same place, None where there is nothing to compare."""
    host_lost: bool = False

    @property
    def exit_code(self) -> int:
        if self.exit is None or (self.exit.error is not None and self.exit.code in OUR_SIGNALS):
            return 1  # it raised first, and we ended it on its way out
        return shell_code(self.exit.code)


def shell_code(code: int) -> int:
    """A signal as shells say it: 128 and its number."""
    return 128 - code if code < 0 else code


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_sentence(exit: Exit) -> str:
    who = f"rank {exit.rank} on {exit.host}"
    if exit.error is not None:
        return f"{who} raised {exit.error.type}: {_first_line(exit.error.message)}"
    if exit.code < 0:
        return f"{who} was killed by {signal_name(-exit.code)}"
    return f"{who} exited with code {exit.code}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


def is_echo(exit: Exit) -> bool:
    return exit.error is not None and bool(ECHOES.search(f"{exit.error.type}: {exit.error.message}"))


def is_consequence(exit: Exit) -> bool:
    """An echo, or an end that we may have made ourselves."""
    return is_echo(exit) or (exit.error is None and exit.code in OUR_SIGNALS)


def moment(exit: Exit) -> float:
    return exit.error.time if exit.error is not None else exit.time


def root_cause(exits: Iterable[Exit]) -> Exit | None:
    """The earliest failure that is not an echo of another one, or else the earliest."""
    failures = sorted((exit for exit in exits if exit.code != 0), key=moment)
    return next((exit for exit in failures if not is_echo(exit)), failures[0] if failures else None)


def signature_of(exit: Exit) -> str | None:
    """The exception and where it came: the step where the script reports steps, the output line where not."""
    if exit.error is None:
        return None
    place = f"step {exit.step}" if exit.step is not None else f"line {exit.lines}"
    message = re.sub(r"0x[0-9a-f]+|\d+", "#", exit.error.message)
    return f"{exit.error.type}: {message} at {place}"


def fault_of(exits: Sequence[Exit]) -> Fault | None:
    exit = root_cause(exits)
    if exit is None:
        return None
    return Fault(sentence=exit_sentence(exit), exit=exit, signature=signature_of(exit))
