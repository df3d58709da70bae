"""Exit codes of qstat and qdel, and a parser of `qstat -f`, for both sides."""

from __future__ import annotations

import re
import time

FINISHED, UNKNOWN_JOB, DENIED = 35, 153, 159
"""Exit codes of PBS's tools: a finished job, an unknown job, and a request without permission."""
_HEAD = re.compile(r"Job Id:\s*(\S+)")
_FIELD = re.compile(r"    (\S+) = ?(.*)")


def parse_jobs(text: str) -> dict[str, dict[str, str]]:
    """The attributes of each job, by job id and by name: `job_state`, `Resource_List.walltime`.

    A line that begins with a tab continues the previous line. If a field occurs twice, the first counts.
    """
    jobs: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in text.replace("\n\t", "").splitlines():
        head, field = _HEAD.match(line), _FIELD.fullmatch(line)
        if head:
            fields = jobs.setdefault(head.group(1), {})
        elif field:
            fields.setdefault(field.group(1), field.group(2))
    return jobs


def find_job(jobs: dict[str, dict[str, str]], job_id: str) -> dict[str, str] | None:
    """Matches the id exactly, otherwise by its number."""
    if job_id in jobs:
        return jobs[job_id]
    return next((fields for name, fields in jobs.items() if job_number(name) == job_number(job_id)), None)


def job_number(job_id: str) -> str:
    """The id without the server, which PBS writes as a short or as a full name."""
    return job_id.partition(".")[0]


def has_successor(job_id: str, recorded_id: str) -> bool:
    """Whether the run directory has the id of another job. It has no id while the job is being submitted."""
    return bool(recorded_id) and job_number(recorded_id) != job_number(job_id)


RERUN_SUBSTATES = range(60, 64)
RERUN_STATUSES = (-11, -14, -20)
"""Values of Exit_status after which PBS queues the job again under the same id."""


def is_rerun(fields: dict[str, str]) -> bool:
    """Whether PBS is about to queue this running job again (qrerun, preemption, a failed host).

    Its state is then R or E. The job's own script never sees state Q.
    """
    state, substate, status = (fields.get(name, "") for name in ("job_state", "substate", "Exit_status"))
    rerun = substate.isdecimal() and int(substate) in RERUN_SUBSTATES
    return state in ("R", "E") and (rerun or status in map(str, RERUN_STATUSES))


def parse_walltime(text: str) -> int | None:
    """Parses `1:30:00`, `90:00` or `5400`; None for other text."""
    if not re.fullmatch(r"\d+(:\d+){0,2}", text):
        return None
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


def parse_time(text: str) -> float | None:
    """Parses PBS's `Thu Jan 15 10:15:00 2026` in local time, or seconds since the epoch; None for other text."""
    if text.isdecimal():
        return float(text)
    try:
        return time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None


def walltime_end(fields: dict[str, str]) -> float | None:
    """When the walltime ends. Computed from the start: PBS updates the used walltime only from time to time."""
    limit = parse_walltime(fields.get("Resource_List.walltime", ""))
    start = parse_time(fields.get("stime", ""))
    return None if limit is None or start is None else start + limit
