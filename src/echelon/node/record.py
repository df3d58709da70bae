"""What the supervisor writes down: events, the first error, the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from echelon.codec import encode
from echelon.errors import EchelonError
from echelon.events import Kind, append_event
from echelon.node.faults import Fault
from echelon.node.situation import Outcome
from echelon.run_dir import RunDir


class Record:
    """A full disk costs us a record, never the training: it is said on stderr and life goes on."""

    def __init__(self, run_dir: RunDir, attempt: int) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self.attempt_dir = run_dir.attempt(attempt)

    def event(self, kind: Kind, **fields: Any) -> None:
        try:
            append_event(self._run_dir.events, kind, self._attempt, **fields)
        except OSError as error:
            print(f"cannot record {kind.value}: {error.strerror}", file=sys.stderr, flush=True)

    def error(self, fault: Fault) -> None:
        """The failure that the run is judged by."""
        verdict = {"sentence": fault.sentence, **encode(fault.exit or {})}
        if fault.exit is not None:
            verdict["log"] = str(self.attempt_dir.rank_log(fault.exit.rank))
        self._write(self.attempt_dir.error, json.dumps(verdict, indent=2) + "\n")

    def finish(self, outcome: Outcome) -> None:
        if outcome.fault is not None:
            self.error(outcome.fault)
        self._write(self.attempt_dir.exit_code, f"{outcome.exit_code}\n")
        fields = {"exit_code": outcome.exit_code, "reason": outcome.reason}
        if outcome.fault is not None:
            fields["fault"] = outcome.fault.sentence
        if outcome.hint:
            fields["hint"] = outcome.hint
        ending = outcome.ending.value
        kind = Kind.REQUEUED if ending == "requeued" else Kind.FINISHED
        self.event(kind, outcome=ending, **fields)

    def _write(self, path: Path, text: str) -> None:
        try:
            self._run_dir.write(path, text.encode())
        except EchelonError as error:
            print(error, file=sys.stderr, flush=True)
