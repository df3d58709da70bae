"""The verdict on a run that failed: who, where, what it said, and where to read on."""

from __future__ import annotations

from echelon.observe.status import RunStatus, read_verdict
from echelon.run_dir import RunDir


def verdict_of(run_dir: RunDir, status: RunStatus) -> str:
    """One verdict, not a wall: the first failure by time, with its traceback and its log."""
    verdict = read_verdict(run_dir, status.attempt)
    lines = [f"{status.run_id} {status.state.value.lower()}: {_headline(status)}"]
    if verdict is not None and status.fault:
        lines += _details(verdict)
    stacks = sorted(run_dir.attempt(status.attempt).path.glob("*.stacks"))
    if stacks:
        lines.append(f"  stacks  {stacks[0].parent}/rank-*.stacks")
    if status.fault and status.reason:
        lines.append(f"  end     {status.reason}")
    if status.hint:
        lines.append(f"  try     {status.hint.replace('RUN', status.run_id)}")
    return "\n".join(lines)


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
