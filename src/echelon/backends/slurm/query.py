"""Commands of squeue, sacct and scontrol, and parsers of their text output, which is the same in all versions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from echelon.backends.slurm.states import EXIT_CODES, STATE_SENTENCES, STATES, reason_sentence
from echelon.states import JobState, JobStatus

JOB_ID = re.compile(r"(\d+(?:_\d+)?)(?:;([\w.-]+))?")
SQUEUE_FORMAT = "%i|%T|%S|%r"  # the reason is last: it may contain any character
SACCT_FORMAT = "JobID,State,ExitCode"
UNKNOWN_JOB = "Invalid job id"
_FIELD = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def parse_job_id(text: str) -> str:
    """Parses the output of `sbatch --parsable`: `123` or `123;cluster`. Raises ValueError."""
    lines = text.split()
    if not lines or not JOB_ID.fullmatch(lines[-1]):
        raise ValueError(f"sbatch printed {text.strip()!r}")
    return lines[-1]


def number_and_cluster(job_id: str) -> tuple[str, str | None]:
    """`123_4;far` is job 123_4 of the cluster far. Raises ValueError."""
    match = JOB_ID.fullmatch(job_id)
    if match is None:
        raise ValueError(f"{job_id!r} is not the id of a Slurm job")
    return match.group(1), match.group(2)


def element_id(job_id: str, index: int) -> str:
    """The id of one array element: index 4 of `123;far` is `123_4;far`."""
    number, cluster = number_and_cluster(job_id)
    return f"{number}_{index}" + (f";{cluster}" if cluster else "")


def tool_argv(tool: str, cluster: str | None, *words: str) -> list[str]:
    return [tool, *([f"--clusters={cluster}"] if cluster else []), *words]


def squeue_argv(numbers: Sequence[str], cluster: str | None, user: int) -> list[str]:
    """Lists one array element per line, and also jobs that ended recently. With the option for the user, the
    controller does not send the jobs of all users."""
    return tool_argv(
        "squeue",
        cluster,
        "--noheader",
        "--array",
        "--states=all",
        f"--users={user}",
        f"--jobs={','.join(numbers)}",
        f"--format={SQUEUE_FORMAT}",
    )


def sacct_argv(numbers: Sequence[str], cluster: str | None) -> list[str]:
    return tool_argv(
        "sacct",
        cluster,
        "--noheader",
        "--parsable2",
        "--allocations",
        f"--jobs={','.join(numbers)}",
        f"--format={SACCT_FORMAT}",
    )


def scontrol_argv(number: str, cluster: str | None) -> list[str]:
    return tool_argv("scontrol", cluster, "--oneliner", "show", "job", number)


def parse_squeue(text: str) -> dict[str, JobStatus]:
    """Statuses by job number. Skips lines without a job, such as the headline of a cluster."""
    found = {}
    for line in text.splitlines():
        number, *rest = line.split("|", 3)
        if len(rest) == 3 and JOB_ID.fullmatch(number):
            state, start, reason = rest
            found[number] = job_status(state, reason=reason.strip(), start=start)
    return found


def parse_sacct(text: str) -> dict[str, JobStatus]:
    found = {}
    for line in text.splitlines():
        number, *rest = line.split("|")
        if len(rest) == 2 and JOB_ID.fullmatch(number):
            found[number] = job_status(rest[0], exit_code=parse_exit_code(rest[1]))
    return found


def parse_fields(line: str) -> dict[str, str]:
    """The fields of a line of `scontrol show -o`. The first value of a name counts: a later one may be part of a user's
    comment or command."""
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        fields.setdefault(name, value)
    return fields


def parse_scontrol(text: str) -> JobStatus | None:
    """Parses one job of `scontrol --oneliner show job`. None if the text has no job."""
    fields = parse_fields(text)
    if "JobState" not in fields:
        return None
    return job_status(
        fields["JobState"], reason=fields.get("Reason", ""), exit_code=parse_exit_code(fields.get("ExitCode", ""))
    )


def parse_exit_code(text: str) -> int | None:
    """Converts Slurm's `code:signal` to a shell's exit code: a signal is 128 plus its number. None for other text."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match is None:
        return None
    code, signum = int(match.group(1)), int(match.group(2))
    return 128 + signum if signum else code


def job_status(word: str, *, reason: str = "", start: str = "", exit_code: int | None = None) -> JobStatus:
    """An unknown state counts as running and is shown as it is."""
    plain = word.split()[0].rstrip("+") if word.split() else ""  # sacct: `CANCELLED by 5001`
    state = STATES.get(plain, JobState.RUNNING)
    waiting = state in (JobState.QUEUED, JobState.REQUEUED)
    sentence = STATE_SENTENCES.get(plain) or (reason_sentence(reason) if waiting or state.ended else "")
    if plain not in STATES:
        sentence = f"Slurm's state is {word.strip()}"
    return JobStatus(
        state=state,
        native=f"{plain} ({reason})" if reason not in ("", "None") else plain,
        reason=sentence,
        exit_code=_exit_code(plain, exit_code),
        expected_start=parse_time(start) if waiting else None,
    )


def with_exit_code(one: JobStatus, code: int | None) -> JobStatus:
    """Adds the exit code, which squeue does not report."""
    if not code or one.state is JobState.SUCCEEDED or one.exit_code is not None:
        return one
    failed_itself = one.native in ("FAILED", "FAILED (NonZeroExitCode)")
    return replace(one, exit_code=code, reason=f"it ended with exit code {code}" if failed_itself else one.reason)


def _exit_code(word: str, code: int | None) -> int | None:
    """Only a successful job has exit code 0."""
    state = STATES.get(word, JobState.RUNNING)
    if state is JobState.SUCCEEDED:
        return code
    return EXIT_CODES.get(word, code or None) if state.ended else None


def parse_time(text: str) -> float | None:
    """Parses a local time to seconds since the epoch; None for Unknown and N/A."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
