"""What the supervisor writes down: events, the first error, the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelon.codec import encode
from echelon.errors import EchelonError
from echelon.events import Kind, append_event
from echelon.node.faults import Fault
from echelon.node.situation import Outcome
from echelon.run_dir import RunDir

RESERVE_BYTES = 1 << 16


class Record:
    """A full disk must not cost us the end of the story: a reserve is given up for it, and ranks go on meanwhile."""

    def __init__(self, run_dir: RunDir, attempt: int) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self.attempt_dir = run_dir.attempt(attempt)
        self._reserve = self.attempt_dir.reserve
        self._remarks: list[str] = []
        self._try("a reserve", lambda: self._reserve.write_bytes(bytes(RESERVE_BYTES)))

    def remark(self, text: str) -> None:
        """Said now in the job's own output, and once more at the end."""
        _mutter(text)
        self._remarks.append(text)

    def event(self, kind: Kind, **fields: Any) -> None:
        self._try(kind.value, lambda: append_event(self._run_dir.events, kind, self._attempt, **fields))

    def error(self, fault: Fault) -> None:
        """The failure that the run is judged by."""
        verdict = {"sentence": fault.sentence, **encode(fault.exit or {})}
        if fault.exit is not None:
            verdict["log"] = str(self.attempt_dir.rank_log(fault.exit.rank))
        self._write(self.attempt_dir.error, json.dumps(verdict, indent=2) + "\n")

    def finish(self, outcome: Outcome) -> None:
        self._reserve.unlink(missing_ok=True)
        if outcome.fault is not None:
            self.error(outcome.fault)
        self._write(self.attempt_dir.exit_code, f"{outcome.exit_code}\n")
        fields: dict[str, Any] = {"exit_code": outcome.exit_code, "reason": outcome.reason}
        if outcome.fault is not None:
            fields["fault"] = outcome.fault.sentence
        if outcome.hint:
            fields["hint"] = outcome.hint.replace("{run}", self._run_dir.run_id)
        if outcome.lost_hosts:
            fields["lost_hosts"] = list(outcome.lost_hosts)
        if not outcome.counts:
            fields["counts"] = False
        if self._remarks:
            fields["remarks"] = self._remarks[-10:]
        ending = outcome.ending.value
        kind = Kind.REQUEUED if ending == "requeued" else Kind.FINISHED
        self.event(kind, outcome=ending, **fields)

    def _write(self, path: Path, text: str) -> None:
        self._try(path.name, lambda: self._run_dir.write(path, text.encode()))

    def _try(self, what: str, write: Callable[[], object]) -> None:
        try:
            write()
        except (OSError, EchelonError) as error:
            _mutter(f"cannot write {what}: {error}")


def _mutter(text: str) -> None:
    """Into the job's own output, which may be on the same full disk."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass
