"""`why --full` and `why --json`: stacks and process states of all ranks. Ranks with the same stacks share one entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from echelon.codec import encode
from echelon.diagnosis.evidence import Child, Frame, ProcessState, RankEvidence, ThreadStack
from echelon.diagnosis.stacks import is_own_code
from echelon.observe.status import RunStatus
from echelon.observe.verdict import (
    SavedRank,
    clean_value,
    describe_ranks,
    format_verdict,
    known_verdict,
    saved_evidence,
)
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.text import format_ranks, plural

SCHEMA = 1
"""Changes only if a field is removed or gets another meaning."""
MOST_GROUPS = 50
MOST_PROCESSES = 300
MOST_FRAMES = 60


@record
class StackGroup:
    ranks: tuple[int, ...]
    threads: tuple[ThreadStack, ...]
    """The main thread is the first one."""


def group_stacks(saved: Sequence[SavedRank]) -> tuple[StackGroup, ...]:
    """One group for each set of equal stacks, by the first rank of the group."""
    groups: dict[tuple[ThreadStack, ...], list[int]] = {}
    for one in saved:
        threads = tuple(_without_start(thread) for thread in one.evidence.threads)
        ordered = tuple(sorted(threads, key=lambda thread: not thread.is_main))
        groups.setdefault(ordered, []).append(one.evidence.rank)
    return tuple(StackGroup(ranks=tuple(ranks), threads=threads) for threads, ranks in groups.items())


def _without_start(thread: ThreadStack) -> ThreadStack:
    """The outermost frames of each rank are those with which echelon starts the script."""
    frames = list(thread.frames)
    while frames and (is_own_code(frames[-1]) or frames[-1].file.startswith("<frozen ")):
        frames.pop()
    return replace(thread, frames=tuple(frames)) if frames else thread


def format_full(run_dir: RunDir, status: RunStatus) -> str:
    """The verdict, followed by the stacks and the process states of all ranks."""
    saved = saved_evidence(run_dir, status, known_verdict(run_dir, status))
    lines = [format_verdict(run_dir, status)]
    if not saved:
        return "\n".join([*lines, "", "no stacks: they are saved only for hangs"])
    groups = group_stacks(saved)
    lines += ["", f"Stacks at {max(one.time for one in saved)}, innermost call first"]
    lines += [line for group in groups[:MOST_GROUPS] for line in _group_lines(group)]
    lines += _left_out(len(groups) - MOST_GROUPS, "group")
    lines += [line for one in saved for child in one.evidence.children for line in _child_lines(one.evidence, child)]
    lines += ["", "Processes", *(line for one in saved[:MOST_PROCESSES] for line in _process_lines(one.evidence))]
    lines += _left_out(len(saved) - MOST_PROCESSES, "rank")
    return "\n".join(lines)


def _left_out(count: int, noun: str) -> list[str]:
    return [f"... and {plural(count, noun)} more"] if count > 0 else []


def _group_lines(group: StackGroup) -> Iterable[str]:
    yield ""
    yield f"{format_ranks(group.ranks)}:"
    if not group.threads:
        yield "  no Python stack: stopped, not a Python process, or it did not respond"
    for index, thread in enumerate(group.threads):
        if index:
            yield "  another thread:"
        yield from _frame_lines(thread, "    " if index else "  ")


def _frame_lines(thread: ThreadStack, indent: str) -> Iterable[str]:
    for frame in thread.frames[:MOST_FRAMES]:
        yield indent + _format_frame(frame)
    if thread.is_truncated or len(thread.frames) > MOST_FRAMES:
        yield f"{indent}..."
    if not thread.frames:
        yield f"{indent}no Python frame"


def _format_frame(frame: Frame) -> str:
    call = f" ({frame.call})" if frame.call else ""
    return f"{frame.file or '?'}:{frame.line or '?'} in {frame.function}{call}"


def _child_lines(one: RankEvidence, child: Child) -> Iterable[str]:
    if not child.threads:
        return
    yield ""
    yield f"{child.process.name or 'child process'} (pid {child.process.pid}) of rank {one.rank}:"
    for thread in child.threads:
        yield from _frame_lines(thread, "  ")


def _process_lines(one: RankEvidence) -> Iterable[str]:
    host = f" on {one.host}" if one.host else ""
    yield f"  rank {one.rank}{host}: {_format_process(one.process)}"
    for child in one.children:
        yield f"    child: {_format_process(child.process)}"


def _format_process(process: ProcessState | None) -> str:
    """`pid 31, state S, clock_nanosleep, waits in hrtimer_nanosleep`."""
    if process is None:
        return "unknown"
    parts = (
        f"pid {process.pid}",
        f"state {process.state}" if process.state else "ended",
        " ".join(filter(None, (process.system_call, process.path))),
        f"waits in {process.wait_channel}" if process.wait_channel else "",
    )
    return ", ".join(filter(None, parts))


def verdict_json(run_dir: RunDir, status: RunStatus) -> dict[str, Any]:
    """All that is known about the end of a run. docs/why.md has the schema."""
    verdict = known_verdict(run_dir, status)
    saved = saved_evidence(run_dir, status, verdict)
    return {
        "schema": SCHEMA,
        "status": clean_value(encode(status)),
        "verdict": verdict or None,
        "evidence": _evidence_json(run_dir, status, saved) if saved else None,
    }


def _evidence_json(run_dir: RunDir, status: RunStatus, saved: Sequence[SavedRank]) -> dict[str, Any]:
    return {
        "folder": str(run_dir.attempt(status.attempt).evidence_of(status.generation)),
        "saved": max(one.time for one in saved),
        "summary": list(describe_ranks(saved)),
        "stacks": encode(group_stacks(saved)),
        "ranks": [_rank_json(one.evidence) for one in saved],
    }


def _rank_json(one: RankEvidence) -> dict[str, Any]:
    """Without the threads: the groups have them."""
    return {name: value for name, value in encode(one).items() if name != "threads"}
