"""What can go wrong, as a person is told it: what, where it came from, why, what to type next.

EchelonError               explainable, printed without a traceback (--debug shows it)
├── ConfigError            the description is wrong                              exit 2
├── EnvironmentProblem     the machine lacks something we need                   exit 3
├── SchedulerError         the scheduler refused, or answered nonsense           exit 4
│   └── SchedulerUnreachable   trying again may help                             exit 75
├── RemoteError            ssh or copy failed; carries the host                  exit 5
└── JobFailed              the job ran and failed; carries the first error       exit 1
"""

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
            f"  {label:<4}  {_indented(text)}"
            for label, text in (("from", self.origin), ("why", self.why), ("try", self.hint))
            if text
        ]
        return "\n".join(parts)


def _indented(text: str) -> str:
    return text.rstrip().replace("\n", "\n        ")


class ConfigError(EchelonError):
    exit_code = 2


class EnvironmentProblem(EchelonError):  # noqa: N818  the word users and the design know it by
    exit_code = 3


class SchedulerError(EchelonError):
    exit_code = 4


class SchedulerUnreachable(SchedulerError):  # noqa: N818  the word users and the design know it by
    exit_code = 75


class RemoteError(EchelonError):
    exit_code = 5

    def __init__(self, what: str, *, host: str, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, origin=host, why=why, hint=hint)
        self.host = host


class JobFailed(EchelonError):  # noqa: N818  the word users and the design know it by
    exit_code = 1
