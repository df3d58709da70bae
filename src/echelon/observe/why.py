"""The verdict on a run that failed: who, where, what it said, and where to read on."""

from __future__ import annotations

from echelon.observe.status import RunStatus, read_verdict
from echelon.run_dir import RunDir
from echelon.states import JobState


def verdict_of(run_dir: RunDir, status: RunStatus) -> str:
    """One verdict, not a wall: the first failure by time, with its traceback and its log."""
    verdict = read_verdict(run_dir, status.attempt)
    lines = [f"{status.run_id} {status.state.value.lower()}: {_headline(status)}"]
    if verdict is not None and status.fault:
        lines += _details(verdict)
    if status.state is not JobState.CANCELLED and status.ended is None:  # it was given no time for a last word
        lines += [f"  | {line}" for line in _last_words(run_dir)]
    stacks = run_dir.attempt(status.attempt).all_stacks()
    if stacks:
        lines.append(f"  stacks  {stacks[0].parent}/rank-*.stacks")
    if status.fault and status.reason:
        lines.append(f"  end     {status.reason}")
    if status.hint:
        lines.append(f"  try     {status.hint}")
    return "\n".join(lines)


def _last_words(run_dir: RunDir) -> list[str]:
    try:
        return run_dir.job_output.read_text(errors="replace").splitlines()[-5:]
    except OSError:
        return []


def _headline(status: RunStatus) -> str:
    return status.fault or status.reason


def _details(verdict: dict[str, object]) -> list[str]:
    error = verdict.get("error")
    lines = []
    if isinstance(error, dict) and error.get("traceback"):
        lines += [f"  | {line}" for line in str(error["traceback"]).rstrip().splitlines()[-20:]]
    if verdict.get("log"):
        lines.append(f"  log     {verdict['log']}")
    return lines
