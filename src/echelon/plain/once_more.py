"""Whether a plain script is run once more, and by whom."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.job import Job

AGAIN = '{ rm -rf "$JOB_STATE"; TRIES=$((${TRIES:-0} + 1)) exec "$BASH" "$0"; }'
"""Where no scheduler would start it once more."""


def once_more(job: Job, count: str, action: str) -> Iterator[str]:
    """`count` is the shell's word for how often that has been done."""
    if job.policies.requeues:
        yield "# Once more after 75, or after a failure that followed the notice; not for ever, nor if it was ended."
        yield '[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"'
        yield f'[ -n "$ended" ] || [ "{count}" -ge {job.policies.requeues} ] || {action}'
    yield 'exit "$code"'
