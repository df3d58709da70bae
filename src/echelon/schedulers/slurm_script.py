"""The job script for Slurm: what is asked for as `#SBATCH` lines, then the supervisor, and nothing else. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import timedelta

from echelon.command import variable
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.schedulers.script import supervisor_of

ARRAY_INDEX = "SLURM_ARRAY_TASK_ID"
LONGEST_LEAD = 65535  # seconds; sbatch takes no more
LONGEST_VALUE = 8000  # sbatch reads a directive into a buffer of 8192 bytes, and cuts off the rest

OURS = {
    **dict.fromkeys(
        ("ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket"), "--procs-per-node"
    ),
    **dict.fromkeys(
        ("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task"), "--gpus-per-node"
    ),
    "nodes": "--nodes", "cpus-per-task": "--cpus", "mem": "--mem", "time": "--time", "signal": "--notice",
    "partition": "--partition", "account": "--account", "qos": "--qos", "constraint": "--constraint",
    "reservation": "--reservation", "nodelist": "--nodelist", "exclude": "--exclude", "array": "--array",
    "dependency": "--dependency", "mail-user": "--mail", "mail-type": "--mail-type", "comment": "--comment",
    "licenses": "--licenses", "job-name": "--name",
    **dict.fromkeys(
        ("chdir", "error", "export", "export-file", "get-user-env", "help", "no-kill", "no-requeue", "open-mode",
         "output", "parsable", "quiet", "requeue", "test-only", "version", "wait", "wait-all-nodes", "wrap"), ""
    ),
}  # fmt: skip
"""Options of sbatch that echelon sets itself, and our setting for each that has one."""


def render(job: Job, run_dir: RunDir) -> str:
    lines = (
        "#!/bin/sh",
        *(directive(name, value) for name, value in directives(job, run_dir)),
        *supervisor_of(job, run_dir).shell_lines(replace_shell=True),
    )
    return "\n".join(lines) + "\n"


def directive(name: str, value: str | None = None) -> str:
    """One line for sbatch, whatever the value holds; a control character could begin another line, and is refused."""
    if value is None:
        return f"#SBATCH --{name}"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ConfigError(
            f"{value!r} cannot be given to Slurm", origin=f"#SBATCH --{name}", why="it holds a control character",
            hint="use a folder whose name has none" if name in ("chdir", "output") else None,
        )  # fmt: skip
    if len(value.encode(errors="surrogateescape")) > LONGEST_VALUE:
        raise ConfigError(f"#SBATCH --{name} is too long", why=f"sbatch reads no more than {LONGEST_VALUE} bytes of it")
    return f"#SBATCH --{name}={quoted(value)}"


def quoted(value: str) -> str:
    """For sbatch, which is no shell: it takes a backslash for an escape between quotes of either kind."""
    if re.fullmatch(r"[A-Za-z0-9_./,:@%=+\[\]-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def directives(job: Job, run_dir: RunDir) -> Iterator[tuple[str, str | None]]:
    yield "job-name", job.name
    yield from _place(job)
    yield from _size(job)
    yield from _life(job)
    yield "output", file_pattern(str(run_dir.job_output))  # and the errors, where nothing else is said of them
    yield "open-mode", "append"
    yield "chdir", job.cwd
    yield "export", "ALL"
    for name, value in job.booking.native.items():
        if name != "gres":
            yield name, value or None


def _place(job: Job) -> Iterator[tuple[str, str | None]]:
    booking = job.booking
    mail_type = booking.mail_type or ("END,FAIL" if booking.mail else None)
    wishes = {
        "partition": booking.partition, "account": booking.account, "qos": booking.qos,
        "reservation": booking.reservation, "constraint": booking.constraint, "nodelist": booking.nodelist,
        "exclude": booking.exclude, "array": booking.array, "dependency": booking.dependency,
        "licenses": booking.licenses, "comment": booking.comment, "mail-user": booking.mail, "mail-type": mail_type,
    }  # fmt: skip
    yield from ((name, value) for name, value in wishes.items() if value is not None)


def _size(job: Job) -> Iterator[tuple[str, str | None]]:
    resources = job.resources
    yield "nodes", str(resources.all_nodes)
    yield "ntasks-per-node", "1"  # one agent each, which starts the node's ranks
    if resources.gpus_per_node and not job.booking.gres:
        yield "gpus-per-node", _typed_count(job)
    generic = [f"gpu:{_typed_count(job)}"] if resources.gpus_per_node and job.booking.gres else []
    generic += filter(None, [job.booking.native.get("gres")])
    if generic:
        yield "gres", ",".join(generic)
    if resources.cpus is not None:
        yield "cpus-per-task", str(resources.cpus)
    if resources.memory is not None:
        yield "mem", resources.memory
    if resources.time_limit is not None:
        yield "time", slurm_time(resources.time_limit)


def _typed_count(job: Job) -> str:
    count = str(job.resources.gpus_per_node)
    return f"{job.booking.gpu_type}:{count}" if job.booking.gpu_type else count


def _life(job: Job) -> Iterator[tuple[str, str | None]]:
    """The notice goes to the supervisor alone; a lost node must not end the job, and the same job is requeued."""
    lead = math.ceil(job.policies.notice.total_seconds())
    yield "signal", f"B:USR1@{min(lead, LONGEST_LEAD)}"
    yield "wait-all-nodes", "1"
    yield "no-kill", None
    yield "requeue", None


def slurm_time(duration: timedelta) -> str:
    """`days-hours:minutes:seconds`, never less than asked for."""
    minutes, seconds = divmod(math.ceil(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"


def file_pattern(path: str) -> str:
    """A file name for Slurm, which fills in ids where it sees a percent sign, unless there is a backslash in it."""
    index = variable(ARRAY_INDEX)
    if "\\" not in path:
        return path.replace("%", "%%").replace(index, "%a")
    if index in path:
        raise ConfigError(
            "an array cannot have its runs in a folder with a backslash in its name",
            origin=path.partition(index)[0],
            why="Slurm then fills in no indices",
            hint="ECHELON_RUNS=DIR puts runs elsewhere",
        )
    return path.replace("\\", "\\\\")
