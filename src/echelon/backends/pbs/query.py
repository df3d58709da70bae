"""Commands of qstat, and parsers of the output of qsub and qstat."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from echelon.backends.pbs import parse
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

JOB_ID = re.compile(r"\d+(?:\[\d*\])?(?:\.[A-Za-z0-9._-]+)?")
UNKNOWN_QUEUE, UNKNOWN_RESOURCE = 170, 187
"""Exit codes of the tools: the lowest byte of PBS's error numbers."""
HINTS = {
    UNKNOWN_QUEUE: "--partition NAME; qstat -Q lists the queues",
    UNKNOWN_RESOURCE: "echelon render shows the -l lines; --pbs-dialect, --pbs and the site profile make them",
    parse.DENIED: "qstat -Qf QUEUE shows who may use a queue",
}
DEAD_HOST = "PBS does not reach the job's first host; try again once it has marked that node down (about 90 s)"
LIVE, HISTORY = ("-f",), ("-x", "-f")
"""Options of qstat for queued and running jobs, and for finished jobs if the server keeps a history. The output is text
because some versions print broken JSON."""


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
    jobs = parse.parse_jobs(text)
    found = {job_id: parse.find_job(jobs, job_id) for job_id in job_ids}
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
    if parse.is_rerun(fields):
        reason = rerun_sentence(fields.get("Exit_status", ""))
        return JobStatus(state=JobState.REQUEUED, native=letter, reason=reason)
    state = STATES.get(letter, JobState.RUNNING)
    return JobStatus(
        state=state,
        native=letter,
        reason=_queue_reason(letter, state, fields),
        expected_start=parse.parse_time(fields.get("estimated.start_time", "")) if state is JobState.QUEUED else None,
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
