"""History: the failures of all attempts of a run. Plain values, encoded as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from echelon.diagnosis.causes import Cause, Death
from echelon.events import Event, Kind
from echelon.record import record


@record
class Failure:
    """The failure that ended a generation."""

    cause: Cause
    signature: str = ""
    """Equal for the same failure. For a script that reports no steps it contains the place in the output."""
    step: int | None = None
    """The last reported step."""
    restored: int | None = None
    """The step of the checkpoint from which the generation started; None if it started from nothing."""
    restored_name: str = ""
    """The name of its folder."""
    host: str = ""


@record
class Attempt:
    failures: tuple[Failure, ...] = ()


@record
class History:
    """Oldest attempt first, and in it the oldest failure first."""

    attempts: tuple[Attempt, ...] = ()

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(failure for attempt in self.attempts for failure in attempt.failures)


NO_HISTORY = History()


def failure_of(death: Death, *, step: int | None, lines: int, restored: int | None, host: str) -> Failure:
    """`lines` is the number of output lines of the rank: its place if the script reports no steps."""
    signature = death.signature if step is not None else f"{death.signature} at line {lines}"
    return Failure(cause=death.cause, signature=signature, step=step, restored=restored, host=host)


def with_failure(history: History, failure: Failure) -> History:
    """The history with one more failure in the last attempt."""
    *others, last = history.attempts or (Attempt(),)
    return replace(history, attempts=(*others, Attempt(failures=(*last.failures, failure))))


def with_attempt(history: History) -> History:
    """The history with a new, empty attempt."""
    return replace(history, attempts=(*history.attempts, Attempt()))


def failure_fields(failure: Failure) -> dict[str, Any]:
    """The failure as fields of a fault event."""
    fields = {
        "cause": failure.cause.value,
        "signature": failure.signature,
        "step": failure.step,
        "restored": failure.restored,
        "restored_name": failure.restored_name,
        "host": failure.host,
    }
    return {name: value for name, value in fields.items() if value not in (None, "")}


def history_of(events: Iterable[Event]) -> History:
    """The failures in the fault events of a run, by attempt."""
    attempts: dict[int, tuple[Failure, ...]] = {}
    for event in events:
        failure = _recorded_failure(event) if event.kind is Kind.FAULT else None
        if failure is not None:
            attempts[event.attempt] = (*attempts.get(event.attempt, ()), failure)
    return History(attempts=tuple(Attempt(failures=attempts[number]) for number in sorted(attempts)))


def _recorded_failure(event: Event) -> Failure | None:
    """None for a fault without a known cause, and for fields that another version wrote."""
    fields = event.fields
    try:
        cause = Cause(fields.get("failure", fields.get("cause")))
    except ValueError:
        return None
    return Failure(
        cause=cause,
        signature=str(fields.get("signature", "")),
        step=_number(fields.get("step")),
        restored=_number(fields.get("restored")),
        restored_name=str(fields.get("restored_name", "")),
        host=str(fields.get("host", "")),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
