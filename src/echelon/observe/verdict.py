"""The verdict on a run as text: cause, what the ranks did, the rule that decided, files and what to try."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from echelon.observe.evidence import SavedRank, clean_text, clean_value, describe_ranks, read_evidence
from echelon.observe.status import RunStatus, read_verdict
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.untrusted import open_regular

MAX_TAIL_BYTES = 8192
MOST_TRACEBACK_LINES = 20
MOST_DETAILS = 20
MOST_LINE = 400
"""Characters of a detail line. A rank may print a line of any length."""
HANG = "hang_"
"""The causes of hangs start with it."""


def format_verdict(run_dir: RunDir, status: RunStatus) -> str:
    """The first failure by time, or what the ranks of a run did that has ended without one."""
    verdict = known_verdict(run_dir, status)
    saved = saved_evidence(run_dir, status, verdict)
    lines = [clean_text(f"{status.run_id} {status.state.value.lower()}: {status.cause}").rstrip(": ")]
    lines += _detail_lines(verdict, saved)
    if status.state is not JobState.CANCELLED and status.state.ended and status.ended is None:
        lines += _quote_lines(_job_output_tail(run_dir))  # it could not record its end
    lines += [_format_fact(name, text) for name, text in _verdict_facts(run_dir, status, verdict, saved) if text]
    return "\n".join(lines)


def known_verdict(run_dir: RunDir, status: RunStatus) -> dict[str, Any]:
    """What error.json has about the fault that ended the run. Empty for other ends."""
    return clean_value(read_verdict(run_dir, status.attempt) or {}) if status.fault else {}


def saved_evidence(run_dir: RunDir, status: RunStatus, verdict: Mapping[str, Any]) -> tuple[SavedRank, ...]:
    """Empty after a crash: what is saved then belongs to an earlier suspicion."""
    if status.state is JobState.SUCCEEDED or "code" in verdict:
        return ()
    return read_evidence(run_dir.attempt(status.attempt), status.generation)


def _verdict_facts(
    run_dir: RunDir, status: RunStatus, verdict: Mapping[str, Any], saved: tuple[SavedRank, ...]
) -> Iterable[tuple[str, str]]:
    rule = _text_field(verdict, "rule")
    evidence = run_dir.attempt(status.attempt).evidence_of(status.generation)
    yield "rule", rule
    yield "change", _text_field(verdict, "change")
    yield "end", status.reason if status.fault and status.reason != rule else ""
    yield from (("slow", sentence) for sentence in status.slow)
    yield "before", status.last_fault or "" if status.last_fault != status.fault else ""
    yield "log", _text_field(verdict, "log")
    yield "files", f"{evidence}" if saved else ""
    yield "stacks", f"echelon why --full {status.run_id}" if saved else ""
    yield "try", status.hint or ""


def _text_field(verdict: Mapping[str, Any], key: str) -> str:
    value = verdict.get(key)
    return value if isinstance(value, str) else ""


def _format_fact(name: str, text: str) -> str:
    return f"  {name:<8}{clean_text(text)}"


def _detail_lines(verdict: Mapping[str, Any], saved: tuple[SavedRank, ...]) -> list[str]:
    """What the ranks did for a hang, otherwise the lines that explain the death and the traceback."""
    details = [str(line)[:MOST_LINE] for line in _list_field(verdict, "details")][:MOST_DETAILS]
    if _text_field(verdict, "cause").startswith(HANG) or not verdict:
        return [f"  {line}" for line in details or describe_ranks(saved)]
    error = verdict.get("error")
    traceback = _text_field(error, "traceback").rstrip().splitlines() if isinstance(error, dict) else []
    new = [line for line in details if line.strip() not in {known.strip() for known in traceback}]
    return _quote_lines([*new, *traceback[-MOST_TRACEBACK_LINES:]])


def _list_field(verdict: Mapping[str, Any], key: str) -> list[Any]:
    value = verdict.get(key)
    return value if isinstance(value, list) else []


def _quote_lines(lines: Iterable[str]) -> list[str]:
    return [f"  | {line}" for line in lines]


def _job_output_tail(run_dir: RunDir) -> list[str]:
    try:
        with os.fdopen(open_regular(run_dir.job_output), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_TAIL_BYTES))
            text = file.read(MAX_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [clean_text(line) for line in text.splitlines()[-5:]]
