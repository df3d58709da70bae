"""Errors as users see them: what, from, why, try. And the exit codes of runs and of the node side."""

from __future__ import annotations

from typing import ClassVar


class EchelonError(Exception):
    exit_code: ClassVar[int] = 1

    def __init__(
        self, what: str, *, origin: str | None = None, why: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.origin = origin
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        parts = [f"error: {self.what}"]
        parts += [
            f"  {label:<4}  {_indent(text)}"
            for label, text in (("from", self.origin), ("why", self.why), ("try", self.hint))
            if text
        ]
        return "\n".join(parts)


def _indent(text: str) -> str:
    return text.rstrip().replace("\n", "\n        ")


class ConfigError(EchelonError):
    exit_code = 2


class EnvironmentProblem(EchelonError):  # noqa: N818  the name in the documentation
    exit_code = 3


class SchedulerError(EchelonError):
    exit_code = 4
    undecided = False
    """The scheduler may still carry out the request, or would do so if it were forced."""


class SchedulerUnreachable(SchedulerError):  # noqa: N818  the name in the documentation
    exit_code = 75


class RemoteError(EchelonError):
    exit_code = 5

    def __init__(self, what: str, *, host: str, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, origin=host, why=why, hint=hint)
        self.host = host


class JobFailed(EchelonError):  # noqa: N818  the name in the documentation
    exit_code = 1


TIME_LIMIT = 124  # as timeout(1)
REQUEUE = 75  # EX_TEMPFAIL: end the attempt and requeue the job
LEASE_HELD = 73  # EX_CANTCREAT: another supervisor of this run is running
NO_VERDICT = 70  # EX_SOFTWARE: the run is lost, or echelon itself failed
NOT_ENTERED = 78  # EX_CONFIG: node.sh could not enter the environment on a node
CANNOT_EXECUTE = 126  # as shells
NOT_FOUND = 127
