"""What qsub, qstat and qdel are asked, and how their answers are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from echelon import qstat
from echelon.schedulers.pbs_words import OVER, STATE_SENTENCES, STATES, comment_sentence, ending, hold_sentence
from echelon.states import JobState, JobStatus

JOB_ID = re.compile(r"\d+(?:\[\d*\])?(?:\.[A-Za-z0-9._-]+)?")

FINISHED, UNKNOWN_JOB, DENIED, UNKNOWN_QUEUE, UNKNOWN_RESOURCE = 35, 153, 159, 170, 187
"""Exit codes of the tools: PBS's own error numbers, less what does not fit into a byte."""

HINTS = {
    UNKNOWN_QUEUE: "--partition NAME; qstat -Q lists the queues",
    UNKNOWN_RESOURCE: "echelon render shows the -l lines; --pbs-dialect, --pbs and the site profile make them",
    DENIED: "qstat -Qf QUEUE shows who may use a queue",
}

FORMS = (("-x", "-f", "-F", "json"), ("-x", "-f"), ("-f",))
"""How qstat is asked, best first: servers without a job history refuse -x, and its JSON is not always JSON."""


def parse_job_id(text: str) -> str:
    """What qsub prints, after whatever a site's hook had to say; raises ValueError."""
    words = text.split()
    if not words or not JOB_ID.fullmatch(words[-1]):
        raise ValueError(f"qsub printed {text.strip()!r}")
    return words[-1]


def qstat_argv(form: Sequence[str], job_ids: Sequence[str]) -> list[str]:
    return ["qstat", *form, *job_ids]


def parse_statuses(text: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """Raises ValueError where the text cannot be read."""
    jobs = qstat.parse(text)
    found = {job_id: qstat.find(jobs, job_id) for job_id in job_ids}
    return {job_id: status(fields) for job_id, fields in found.items() if fields is not None}


def status(fields: Mapping[str, str]) -> JobStatus:
    """A letter that is new to us is one of a living job, shown as it is."""
    letter = fields.get("job_state", "")
    if letter in OVER:
        return _over(letter, fields)
    state = STATES.get(letter, JobState.RUNNING)
    return JobStatus(
        state=state,
        native=letter,
        reason=_reason(letter, state, fields),
        expected_start=qstat.moment(fields.get("estimated.start_time", "")) if state is JobState.QUEUED else None,
    )


def _over(letter: str, fields: Mapping[str, str]) -> JobStatus:
    text = fields.get("Exit_status", "")
    code = int(text) if re.fullmatch(r"-?\d+", text) else None
    state, sentence, exit_code = ending(code)
    if letter == "M":
        return JobStatus(state=JobState.RUNNING, native=letter, reason=STATE_SENTENCES["M"])
    native = f"{letter} (Exit_status {code})" if code is not None else letter
    return JobStatus(state=state, native=native, reason=sentence, exit_code=exit_code)


def _reason(letter: str, state: JobState, fields: Mapping[str, str]) -> str:
    if letter not in STATES:
        return f"PBS calls it {letter}"
    if letter == "H":
        return hold_sentence(fields.get("Hold_Types", ""), fields.get("depend", ""))
    comment = comment_sentence(fields.get("comment", "")) if state is JobState.QUEUED else ""
    return comment or STATE_SENTENCES.get(letter, "")
