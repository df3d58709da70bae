"""Exit codes of PBS's tools, commands of qstat, and parsers of the output of qsub and qstat, for both sides."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from echelon.backends.pbs.states import (
    FINAL_STATES,
    STATE_SENTENCES,
    STATES,
    comment_sentence,
    end_status,
    hold_sentence,
    rerun_sentence,
)
from echelon.states import JobState, JobStatus

FINISHED, UNKNOWN_JOB, DENIED = 35, 153, 159
"""Exit codes of PBS's tools: a finished job, an unknown job, and a request without permission."""
_HEAD = re.compile(r"Job Id:\s*(\S+)")
_FIELD = re.compile(r"    (\S+) = ?(.*)")
JOB_ID = re.compile(r"\d+(?:\[\d*\])?(?:\.[A-Za-z0-9._-]+)?")
UNKNOWN_QUEUE, UNKNOWN_RESOURCE = 170, 187
"""Exit codes of the tools: the lowest byte of PBS's error numbers."""
HINTS = {
    UNKNOWN_QUEUE: "--partition NAME; qstat -Q lists the queues",
    UNKNOWN_RESOURCE: "echelon render shows the -l lines; --pbs-dialect, --pbs and the site profile make them",
    DENIED: "qstat -Qf QUEUE shows who may use a queue",
}
DEAD_HOST = "PBS does not reach the job's first host; try again once it has marked that node down (about 90 s)"
LIVE, HISTORY = ("-f",), ("-x", "-f")
"""Options of qstat for queued and running jobs, and for finished jobs if the server keeps a history. The output is text
because some versions print broken JSON."""


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


def parse_job_id(text: str) -> str:
    """The last word that qsub prints. Output of a site's hook may precede it. Raises ValueError."""
    words = text.split()
    if not words or not JOB_ID.fullmatch(words[-1]):
        raise ValueError(f"qsub printed {text.strip()!r}")
    return words[-1]


def element_id(array_id: str, index: int) -> str:
    """The id of one array element: index 3 of `24[].server` is `24[3].server`. An ordinary job keeps its id."""
    return array_id.replace("[]", f"[{index}]", 1)


def array_id(job_id: str) -> str:
    """The id of the array of an element. The id of an ordinary job is unchanged."""
    return re.sub(r"\[\d+\]", "[]", job_id, count=1)


def qstat_argv(form: Sequence[str], job_ids: Sequence[str]) -> list[str]:
    return ["qstat", *form, *job_ids]


def parse_statuses(text: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
    jobs = parse_jobs(text)
    found = {job_id: find_job(jobs, job_id) for job_id in job_ids}
    return {
        job_id: job_status(fields)
        for job_id, fields in found.items()
        if fields is not None and _has_exit_status(fields)
    }


def _has_exit_status(fields: Mapping[str, str]) -> bool:
    """False if the exit status is missing: for an ended array element PBS may show only the state X."""
    return fields.get("job_state") != "X" or "Exit_status" in fields


def job_status(fields: dict[str, str]) -> JobStatus:
    """An unknown state letter counts as running and is shown as it is."""
    letter = fields.get("job_state", "")
    if letter in FINAL_STATES:
        return _ended_status(letter, fields)
    if is_rerun(fields):
        reason = rerun_sentence(fields.get("Exit_status", ""))
        return JobStatus(state=JobState.REQUEUED, native=letter, reason=reason)
    state = STATES.get(letter, JobState.RUNNING)
    return JobStatus(
        state=state,
        native=letter,
        reason=_queue_reason(letter, state, fields),
        expected_start=parse_time(fields.get("estimated.start_time", "")) if state is JobState.QUEUED else None,
    )


def _ended_status(letter: str, fields: Mapping[str, str]) -> JobStatus:
    text = fields.get("Exit_status", "")
    code = int(text) if re.fullmatch(r"-?\d+", text) else None
    state, sentence, exit_code = end_status(code)
    if letter == "M":
        return JobStatus(state=JobState.RUNNING, native=letter, reason=STATE_SENTENCES["M"])
    native = f"{letter} (Exit_status {code})" if code is not None else letter
    return JobStatus(state=state, native=native, reason=sentence, exit_code=exit_code)


def _queue_reason(letter: str, state: JobState, fields: Mapping[str, str]) -> str:
    if letter not in STATES:
        return f"PBS's state is {letter}"
    if letter == "H":
        return hold_sentence(fields.get("Hold_Types", ""), fields.get("depend", ""))
    comment = comment_sentence(fields.get("comment", "")) if state is JobState.QUEUED else ""
    return comment or STATE_SENTENCES.get(letter, "")
