"""What a plain script makes of failures and of the signals that end it: the first code is the job's."""

from __future__ import annotations

from echelon.job import Job

RANK = (
    "# What runs each rank, and stays until that has answered a TERM. Launchers exit with 1 whatever their ranks exit",
    "# with, so the first failure is noted here. 75 is a wish to be run again: the others may finish their saving.",
    'note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: whoever comes second finds it taken',
    'rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }',
)


def ending(job: Job, signals: str, *action: str) -> str:
    """What becomes of the signals that end a job. Who ended it does not want it back."""
    if not job.policies.requeues:
        return f"trap '{'; '.join(action) or ':'}' {signals}"
    return f"ended= && trap '{'; '.join(('ended=yes', *action))}' {signals}"
