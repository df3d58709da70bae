"""The job script for Slurm: `#SBATCH` lines, then the supervisor. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import timedelta

from echelon.backends.process import supervisor_command
from echelon.backends.slurm import Slurm
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.shell import shell_variable

ARRAY_INDEX = Slurm.array_index_variable
LONGEST_LEAD = 65535  # seconds; the maximum of sbatch
LONGEST_VALUE = 8000  # sbatch reads a directive into a buffer of 8192 bytes and drops the rest
RESERVED_OPTIONS = {
    **dict.fromkeys(
        ("ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket"), "--procs-per-node"
    ),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task"), "--gpus-per-node"),
    "nodes": "--nodes",
    "cpus-per-task": "--cpus",
    "mem": "--mem",
    "time": "--time",
    "signal": "--notice",
    "partition": "--partition",
    "account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
    "reservation": "--reservation",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "array": "--array",
    "dependency": "--dependency",
    "mail-user": "--mail",
    "mail-type": "--mail-type",
    "comment": "--comment",
    "licenses": "--licenses",
    "job-name": "--name",
    **dict.fromkeys(
        (
            "chdir",
            "error",
            "export",
            "export-file",
            "get-user-env",
            "help",
            "no-kill",
            "no-requeue",
            "open-mode",
            "output",
            "parsable",
            "quiet",
            "requeue",
            "test-only",
            "version",
            "wait",
            "wait-all-nodes",
            "wrap",
        ),
        "",
    ),
}
"""Options of sbatch that echelon sets, and the option of echelon for each; empty if it has none."""
SETS_CPUS = frozenset({"exclusive", "cpus-per-gpu", "mincpus", "threads-per-core", "cores-per-socket"})
"""Options of sbatch that set the number of CPUs."""


def render(job: Job, run_dir: RunDir) -> str:
    lines = (
        "#!/bin/sh",
        *(directive(name, value) for name, value in directives(job, run_dir)),
        *supervisor_command(job, run_dir).shell_lines(replace_shell=True),
    )
    return "\n".join(lines) + "\n"


def directive(name: str, value: str | None = None) -> str:
    """One `#SBATCH` line with a quoted value. Raises ConfigError for a control character, which could start a new line,
    and for a value that is too long."""
    if value is None:
        return f"#SBATCH --{name}"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ConfigError(
            f"{value!r} cannot be passed to Slurm",
            origin=f"#SBATCH --{name}",
            why="it contains a control character",
            hint="use a folder whose name has none" if name in ("chdir", "output") else None,
        )
    if len(value.encode(errors="surrogateescape")) > LONGEST_VALUE:
        raise ConfigError(f"#SBATCH --{name} is too long", why=f"sbatch reads at most {LONGEST_VALUE} bytes of it")
    return f"#SBATCH --{name}={quote_value(value)}"


def quote_value(value: str) -> str:
    """Quotes a value for sbatch. Unlike a shell, sbatch treats a backslash as an escape in both kinds of quotes."""
    if re.fullmatch(r"[A-Za-z0-9_./,:@%=+\[\]-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def directives(job: Job, run_dir: RunDir) -> Iterator[tuple[str, str | None]]:
    yield "job-name", job.name
    yield from _queue_directives(job)
    yield from _resource_directives(job)
    yield from _lifetime_directives(job)
    yield "output", escape_output_path(str(run_dir.job_output))  # also for stderr, which sbatch joins by default
    yield "open-mode", "append"
    yield "chdir", job.cwd
    yield "export", "ALL"
    for name, value in job.booking.native.items():
        if name != "gres":
            yield name, value or None


def _queue_directives(job: Job) -> Iterator[tuple[str, str | None]]:
    booking = job.booking
    mail_type = booking.mail_type or ("END,FAIL" if booking.mail else None)
    settings = {
        "partition": booking.partition,
        "account": booking.account,
        "qos": booking.qos,
        "reservation": booking.reservation,
        "constraint": booking.constraint,
        "nodelist": booking.nodelist,
        "exclude": booking.exclude,
        "array": booking.array,
        "dependency": booking.dependency,
        "licenses": booking.licenses,
        "comment": booking.comment,
        "mail-user": booking.mail,
        "mail-type": mail_type,
    }
    yield from ((name, value) for name, value in settings.items() if value is not None)


def _resource_directives(job: Job) -> Iterator[tuple[str, str | None]]:
    resources = job.resources
    yield "nodes", str(resources.all_nodes)
    yield "ntasks-per-node", "1"  # the agent, which starts the ranks of the node
    if resources.gpus_per_node and not job.booking.gres:
        yield "gpus-per-node", _typed_count(job)
    generic = [f"gpu:{_typed_count(job)}"] if resources.gpus_per_node and job.booking.gres else []
    generic += filter(None, [job.booking.native.get("gres")])
    if generic:
        yield "gres", ",".join(generic)
    cpus = requested_cpus(job)
    if cpus is not None:
        yield "cpus-per-task", str(cpus)
    if resources.memory is not None:
        yield "mem", resources.memory
    if resources.time_limit is not None:
        yield "time", slurm_time(resources.time_limit)


def requested_cpus(job: Job) -> int | None:
    """CPUs to request per node; None for the default of the site.

    Without GPUs the default is one per rank, because Slurm would allocate one per node. With GPUs the default is None:
    many sites allocate CPUs with each GPU (DefCpuPerGPU), but only if the job requests none.
    """
    resources = job.resources
    if resources.cpus is not None or resources.gpus_per_node or resources.procs_per_node == 1:
        return resources.cpus
    return None if SETS_CPUS & job.booking.native.keys() else resources.procs_per_node


def _typed_count(job: Job) -> str:
    count = str(job.resources.gpus_per_node)
    return f"{job.booking.gpu_type}:{count}" if job.booking.gpu_type else count


def _lifetime_directives(job: Job) -> Iterator[tuple[str, str | None]]:
    """Options for the life of the job: Slurm sends the notice only to the supervisor (B:), a lost node does not end the
    job, and the job can be requeued."""
    lead = math.ceil(job.policies.notice.total_seconds())
    yield "signal", f"B:USR1@{min(lead, LONGEST_LEAD)}"
    yield "wait-all-nodes", "1"
    yield "no-kill", None
    yield "requeue", None


def slurm_time(duration: timedelta) -> str:
    """`days-hours:minutes:seconds`, rounded up."""
    minutes, seconds = divmod(math.ceil(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"


def escape_output_path(path: str) -> str:
    """Escapes a file name for Slurm, which replaces `%` patterns unless the name contains a backslash. Raises
    ConfigError for an array in a folder with a backslash."""
    index = shell_variable(ARRAY_INDEX)
    if "\\" not in path:
        return path.replace("%", "%%").replace(index, "%a")
    if index in path:
        raise ConfigError(
            "the runs of an array cannot be in a folder with a backslash in its name",
            origin=path.partition(index)[0],
            why="Slurm does not insert the array index in such a path",
            hint="ECHELON_RUNS=DIR selects another folder",
        )
    return path.replace("\\", "\\\\")
