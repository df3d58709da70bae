"""The verdict on a run as text: cause, what the ranks did, the rule that decided, files and what to try."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.attempt_dir import AttemptDir
from echelon.codec import decode
from echelon.diagnosis.activity import classify
from echelon.diagnosis.evidence import Child, ProcessState, RankEvidence
from echelon.diagnosis.hang_text import describe_activity
from echelon.diagnosis.stacks import parse_stacks
from echelon.observe.status import RunStatus, read_verdict
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.text import group_ranks, mask_secrets
from echelon.untrusted import clean_for_terminal, open_regular, parse_json, read_regular

MAX_TAIL_BYTES = 8192
MOST_TRACEBACK_LINES = 20
MOST_DETAILS = 20
MOST_LINE = 400
"""Characters of a detail line. A rank may print a line of any length."""
HANG = "hang_"
"""The causes of hangs start with it."""
MOST_RANKS = 4096
MOST_EVIDENCE_BYTES = 1 << 20
MOST_STACK_BYTES = 1 << 20
MOST_TEXT = 8000
"""Characters of one string. A longer one loses its middle: a traceback has its cause at the end."""
DUMP_HEAD = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d), generation (\d+)$", re.MULTILINE)


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
    yield from (("warning", remark) for remark in status.remarks if remark not in status.slow)
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


# What the agents have saved about the ranks of a hang. All of it is untrusted and bounded


@record
class SavedRank:
    time: str
    """When it was saved, on the clock of the node."""
    evidence: RankEvidence


def read_evidence(attempt: AttemptDir, generation: int) -> tuple[SavedRank, ...]:
    """By rank. Evidence of an earlier generation is left out: its ranks hung and were restarted."""
    ranks = sorted(number for path in attempt.all_stacks(generation) if (number := _rank_of(path)) is not None)
    found = [_read_rank(attempt, rank, generation) for rank in ranks[:MOST_RANKS]]
    return tuple(one for one in found if one is not None)


def _rank_of(path: Path) -> int | None:
    name = path.stem.removeprefix("rank-")
    return int(name) if name.isdecimal() and name.isascii() and len(name) < 9 else None


def _read_rank(attempt: AttemptDir, rank: int, generation: int) -> SavedRank | None:
    text = _tail(attempt.rank_stacks(rank, generation))
    heads = list(DUMP_HEAD.finditer(text))
    if not heads or int(heads[-1][2]) != generation:
        return None
    try:
        data = clean_value(parse_json(read_regular(attempt.rank_evidence(rank, generation), MOST_EVIDENCE_BYTES)))
        evidence = decode(RankEvidence, data)
    except (OSError, ValueError):
        evidence = RankEvidence(rank=rank, threads=parse_stacks(text[heads[-1].end() :]))
    return SavedRank(time=heads[-1][1], evidence=_mask_commands(replace(evidence, rank=rank)))


def _tail(path: Path) -> str:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_STACK_BYTES))
            return file.read(MOST_STACK_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _mask_commands(one: RankEvidence) -> RankEvidence:
    children = tuple(Child(process=_mask_command(child.process), threads=child.threads) for child in one.children)
    return replace(one, process=one.process and _mask_command(one.process), children=children)


def _mask_command(process: ProcessState) -> ProcessState:
    return replace(process, command=mask_secrets(process.command))


def clean_value(value: Any) -> Any:
    """A copy of a JSON value without escape sequences and secrets. Long strings are cut."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item) for item in value]
    return value


def clean_text(text: str) -> str:
    half = MOST_TEXT // 2
    short = text if len(text) <= MOST_TEXT else f"{text[:half]} ... {text[-half:]}"
    return mask_secrets(clean_for_terminal(short))


def describe_ranks(saved: Sequence[SavedRank]) -> tuple[str, ...]:
    """What each rank did: `ranks 0-2: waiting in all_reduce at train.py:61`."""
    return group_ranks({one.evidence.rank: describe_activity(classify(one.evidence)) for one in saved})
