"""What squeue, sacct and scontrol are asked, and how their answers are read: text, which no version has changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from echelon import scontrol
from echelon.schedulers.slurm_words import EXIT_CODES, STATE_SENTENCES, STATES, reason_sentence
from echelon.states import JobState, JobStatus

JOB_ID = re.compile(r"(\d+(?:_\d+)?)(?:;([\w.-]+))?")
SQUEUE_FORMAT = "%i|%T|%S|%r"  # the reason last: it may hold anything
SACCT_FORMAT = "JobID,State,ExitCode"
UNKNOWN_JOB = "Invalid job id"


def parse_job_id(text: str) -> str:
    """What `sbatch --parsable` prints: `123`, or `123;cluster`; raises ValueError."""
    lines = text.split()
    if not lines or not JOB_ID.fullmatch(lines[-1]):
        raise ValueError(f"sbatch printed {text.strip()!r}")
    return lines[-1]


def number_and_cluster(job_id: str) -> tuple[str, str | None]:
    """`123_4;far` is job 123_4 of the cluster far; raises ValueError."""
    match = JOB_ID.fullmatch(job_id)
    if match is None:
        raise ValueError(f"{job_id!r} is no id of a Slurm job")
    return match.group(1), match.group(2)


def element_id(job_id: str, index: int) -> str:
    """One job of an array: `123;far` has `123_4;far`."""
    number, cluster = number_and_cluster(job_id)
    return f"{number}_{index}" + (f";{cluster}" if cluster else "")


def tool_argv(tool: str, cluster: str | None, *words: str) -> list[str]:
    return [tool, *([f"--clusters={cluster}"] if cluster else []), *words]


def squeue_argv(numbers: Sequence[str], cluster: str | None, user: int) -> list[str]:
    """Each element of an array on a line of its own, and jobs that ended a moment ago too. With the user named, the
    controller need not send the jobs of all of them."""
    return tool_argv(
        "squeue", cluster, "--noheader", "--array", "--states=all", f"--users={user}", f"--jobs={','.join(numbers)}",
        f"--format={SQUEUE_FORMAT}",
    )  # fmt: skip


def sacct_argv(numbers: Sequence[str], cluster: str | None) -> list[str]:
    return tool_argv(
        "sacct", cluster, "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(numbers)}",
        f"--format={SACCT_FORMAT}",
    )  # fmt: skip


def scontrol_argv(number: str, cluster: str | None) -> list[str]:
    return tool_argv("scontrol", cluster, "--oneliner", "show", "job", number)


def parse_squeue(text: str) -> dict[str, JobStatus]:
    """By job number. Lines that are no job, such as a cluster's headline, are passed over."""
    found = {}
    for line in text.splitlines():
        number, *rest = line.split("|", 3)
        if len(rest) == 3 and JOB_ID.fullmatch(number):
            state, start, reason = rest
            found[number] = status(state, reason=reason.strip(), start=start)
    return found


def parse_sacct(text: str) -> dict[str, JobStatus]:
    found = {}
    for line in text.splitlines():
        number, *rest = line.split("|")
        if len(rest) == 2 and JOB_ID.fullmatch(number):
            found[number] = status(rest[0], exit_code=parse_exit_code(rest[1]))
    return found


def parse_scontrol(text: str) -> JobStatus | None:
    """One job of `scontrol --oneliner show job`."""
    fields = scontrol.fields_of(text)
    if "JobState" not in fields:
        return None
    return status(
        fields["JobState"], reason=fields.get("Reason", ""), exit_code=parse_exit_code(fields.get("ExitCode", ""))
    )


def parse_exit_code(text: str) -> int | None:
    """Slurm's `code:signal`, as shells say it; None where it says nothing."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match is None:
        return None
    code, signum = int(match.group(1)), int(match.group(2))
    return 128 + signum if signum else code


def status(word: str, *, reason: str = "", start: str = "", exit_code: int | None = None) -> JobStatus:
    """A state that is new to us is one of a living job, shown as it is."""
    plain = word.split()[0].rstrip("+") if word.split() else ""  # sacct: `CANCELLED by 5001`
    state = STATES.get(plain, JobState.RUNNING)
    waiting = state in (JobState.QUEUED, JobState.REQUEUED)
    sentence = STATE_SENTENCES.get(plain) or (reason_sentence(reason) if waiting or state.ended else "")
    if plain not in STATES:
        sentence = f"Slurm calls it {word.strip()}"
    return JobStatus(
        state=state,
        native=f"{plain} ({reason})" if reason not in ("", "None") else plain,
        reason=sentence,
        exit_code=_exit_code(plain, exit_code),
        expected_start=parse_time(start) if waiting else None,
    )


def with_exit_code(one: JobStatus, code: int | None) -> JobStatus:
    """The queue tells that a job failed, and others with which code."""
    if not code or one.state is JobState.SUCCEEDED or one.exit_code is not None:
        return one
    failed_itself = one.native in ("FAILED", "FAILED (NonZeroExitCode)")
    return replace(one, exit_code=code, reason=f"it ended with exit code {code}" if failed_itself else one.reason)


def _exit_code(word: str, code: int | None) -> int | None:
    """0 is for success alone."""
    state = STATES.get(word, JobState.RUNNING)
    if state is JobState.SUCCEEDED:
        return code
    return EXIT_CODES.get(word, code or None) if state.ended else None


def parse_time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
