"""Reads what the agents have saved about the ranks of a hang. All of it is untrusted and bounded."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echelon.attempt_dir import AttemptDir
from echelon.codec import decode
from echelon.diagnosis.activity import classify
from echelon.diagnosis.evidence import Child, ProcessState, RankEvidence
from echelon.diagnosis.hang_text import describe_activity
from echelon.diagnosis.ranks import group_ranks
from echelon.diagnosis.stacks import parse_stacks
from echelon.masking import mask_secrets
from echelon.untrusted import clean_for_terminal, open_regular, parse_json, read_regular

MOST_RANKS = 4096
MOST_EVIDENCE_BYTES = 1 << 20
MOST_STACK_BYTES = 1 << 20
MOST_TEXT = 8000
"""Characters of one string. A longer one loses its middle: a traceback has its cause at the end."""
DUMP_HEAD = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d), generation (\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
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
