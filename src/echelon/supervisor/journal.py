"""Records events, the first error and the exit code of an attempt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelon.codec import encode
from echelon.diagnosis.history import failure_fields
from echelon.diagnosis.slow import Change, Verdict
from echelon.errors import EchelonError
from echelon.events import Kind, append_event
from echelon.run_dir import RunDir
from echelon.supervisor.state import Outcome, ReportFault
from echelon.wire.faults import Fault

RESERVE_BYTES = 1 << 16


class Journal:
    """Writes the records of an attempt. A failed write is printed and does not stop the ranks.

    `finish` first deletes a reserve file, so that the outcome fits on a full disk.
    """

    def __init__(self, run_dir: RunDir, attempt: int) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self.attempt_dir = run_dir.attempt(attempt)
        self._reserve = self.attempt_dir.reserve
        self._remarks: list[str] = []
        self._write_or_report("the reserve file", lambda: self._reserve.write_bytes(bytes(RESERVE_BYTES)))

    def remark(self, text: str) -> None:
        """Writes to the job's own output now, and adds the text to the last event."""
        _print_to_job_output(text)
        self._remarks.append(text)

    def warn(self, text: str) -> None:
        """A remark that is also an event, so that commands that follow the run show it at once."""
        self.event(Kind.WARNING, text=text)
        _print_to_job_output(f"warning: {text}")
        self._remarks.append(text)

    def slow(self, verdict: Verdict) -> None:
        """Records a rank that slows the others down. A slowness that has passed already is only an event."""
        change = verdict.change
        self.event(
            Kind.SLOW,
            text=verdict.sentence,
            change=change.value,
            ranks=list(verdict.ranks),
            since_step=verdict.since_step,
            reason=verdict.reason.value,
            factor=verdict.factor,
        )
        if change is Change.CHRONIC:
            _print_to_job_output(f"warning: {verdict.sentence}")
            self._remarks.append(verdict.sentence)

    def print_only(self, text: str) -> None:
        """Writes only to the job's own output."""
        _print_to_job_output(text)

    def event(self, kind: Kind, **fields: Any) -> None:
        self._write_or_report(kind.value, lambda: append_event(self._run_dir.events, kind, self._attempt, **fields))

    def fault(self, report: ReportFault) -> None:
        """Writes error.json, the analysis of a hang, and an event, from which the next attempts read the failure."""
        fault, failure = report.fault, report.fault.failure
        self.error(fault)
        if self.attempt_dir.evidence_of(report.generation).is_dir():
            self._write(self.attempt_dir.analysis(report.generation), self._verdict_text(fault))
        facts = {"step": report.step} if failure is None else {"step": None, **failure_fields(failure)}
        if fault.cause and fault.cause != facts.get("cause"):  # a hang has a kind of its own
            facts |= {"cause": fault.cause, **({"failure": facts["cause"]} if "cause" in facts else {})}
        facts |= {"rule": fault.rule} if fault.rule else {}
        head = {"generation": report.generation, "fault": fault.sentence, "restarts_left": report.restarts_left}
        self.event(Kind.FAULT, **head, **facts)

    def error(self, fault: Fault) -> None:
        """Writes the cause of the failure to error.json."""
        self._write(self.attempt_dir.error, self._verdict_text(fault))

    def _verdict_text(self, fault: Fault) -> str:
        verdict = {"sentence": fault.sentence, **encode(fault.exit or {})}
        if fault.exit is not None:
            verdict["log"] = str(self.attempt_dir.rank_log(fault.exit.rank))
        texts = {"cause": fault.cause, "hint": fault.hint, "rule": fault.rule, "change": fault.change}
        diagnosis = {
            "ranks": fault.ranks,
            "details": fault.details,
            **{k: self._with_run_id(t) for k, t in texts.items()},
        }
        verdict.update({key: value for key, value in diagnosis.items() if value})
        return json.dumps(verdict, indent=2) + "\n"

    def finish(self, outcome: Outcome) -> None:
        self._reserve.unlink(missing_ok=True)
        if outcome.fault is not None:
            self.error(outcome.fault)
        self._write(self.attempt_dir.exit_code, f"{outcome.exit_code}\n")
        fields: dict[str, Any] = {"exit_code": outcome.exit_code, "reason": outcome.reason}
        if outcome.fault is not None:
            fields["fault"] = outcome.fault.sentence
        if outcome.hint:
            fields["hint"] = self._with_run_id(outcome.hint)
        if outcome.lost_hosts:
            fields["lost_hosts"] = list(outcome.lost_hosts)
        steps = {"step": outcome.step, "saved": outcome.saved_step}
        fields.update({name: step for name, step in steps.items() if step is not None})
        if not outcome.uses_requeue:
            fields["counts"] = False
        if self._remarks:
            fields["remarks"] = self._remarks[-10:]
        ending = outcome.ending.value
        kind = Kind.REQUEUED if ending == "requeued" else Kind.FINISHED
        self.event(kind, outcome=ending, **fields)

    def _with_run_id(self, text: str) -> str:
        return text.replace("{run}", self._run_dir.run_id)

    def _write(self, path: Path, text: str) -> None:
        self._write_or_report(path.name, lambda: self._run_dir.write(path, text.encode()))

    def _write_or_report(self, what: str, write: Callable[[], object]) -> None:
        try:
            write()
        except (OSError, EchelonError) as error:
            _print_to_job_output(f"cannot write {what}: {error}")


def _print_to_job_output(text: str) -> None:
    """Writes to the job's own output. Ignores errors: it may be on the same full disk."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass
