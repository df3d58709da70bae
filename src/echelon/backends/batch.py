"""What Slurm and PBS share: queue settings, job variables, messages for an unreachable server, and job arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from echelon.backends import Backend
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.shell import shell_variable


@record
class SchedulerFacts:
    prefixes: tuple[str, ...]
    """Prefixes of variables that describe a job or change the behaviour of the tools."""
    kept_variables: frozenset[str]
    """Variables with such a prefix that select the server or the identity of the user."""
    unreachable_messages: tuple[str, ...]
    """Messages of the tools if the controller does not answer. A retry may help."""

    def environ_outside_job(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables without those of a surrounding job, such as its size, location and ranks."""
        return {n: value for n, value in environ.items() if n in self.kept_variables or not n.startswith(self.prefixes)}

    def is_unreachable(self, output: str) -> bool:
        return any(sign.lower() in output.lower() for sign in self.unreachable_messages)


SLURM = SchedulerFacts(
    prefixes=("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_", "OMPI_COMM_WORLD_"),
    kept_variables=frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}),
    unreachable_messages=(
        "Unable to contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "Connection timed out",
        "Zero Bytes were transmitted",
        "Slurm backup controller in standby",
        "Resource temporarily unavailable",
        "temporarily unable to accept job",
    ),
)
PBS = SchedulerFacts(
    prefixes=("PBS_",),
    kept_variables=frozenset(
        {"PBS_DEFAULT", "PBS_SERVER", "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_PRIMARY", "PBS_SECONDARY"}
    ),
    unreachable_messages=(
        "cannot connect to server",
        "Connection refused",
        "Connection timed out",
        "Communication failure",
        "Premature end of message",
        "End of File",
        "No route to host",
        "Server is shutting down",
    ),
)
STEP_SETTING_VARIABLES = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NNODES",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_PER_GPU",
    "SLURM_DISTRIBUTION",
    "SLURM_ARBITRARY_NODELIST",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_CPU_BIND",
    "SLURM_MEM_BIND",
    "SLURM_HINT",
    "SLURM_THREADS_PER_CORE",
    "SLURM_EXCLUSIVE",
    "SLURM_OVERLAP",
    "SLURM_EXPORT_ENV",
    "SLURM_GRES",
)
"""Variables that srun reads as settings of a step. They describe the whole job or the surrounding shell."""
KEPT_STEP_VARIABLES = frozenset(
    {"SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER"}
    | {"SLURM_RESTART_COUNT", "SLURM_MPI_TYPE"}
)
KEPT_STEP_PREFIXES = ("SLURM_JOB_", "SLURM_ARRAY_", "SLURM_SUBMIT_")


def step_variables_to_remove(environ: Iterable[str]) -> list[str]:
    """Names of variables to remove for the next step: srun would read the values of the current step. Pure."""
    ours = (name for name in environ if name.startswith(("SLURM_", "SRUN_", "PMI_", "PMIX_")))
    return sorted(name for name in ours if name not in KEPT_STEP_VARIABLES and not name.startswith(KEPT_STEP_PREFIXES))


QUEUE_SETTINGS = frozenset(
    {"cpus", "mem", "interface", "partition", "account", "array", "dependency", "mail", "mail_type"}
)


class BatchBackend(Backend):
    runs_script_here = False

    def query_interval(self, seconds: float) -> float:
        from echelon.backends import batch_tools

        return batch_tools.query_interval(seconds)


# Job arrays: one submission, one run per index. `0-9`, `1,3,5`, `0-20:5`, `0-99%4`

MAX_INDICES = 100_000
_PART = re.compile(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?")


def parse_indices(text: str) -> tuple[int, ...]:
    """Unique indices in ascending order. The scheduler applies the limit after `%`. Raises ValueError."""
    parts, percent, limit = text.partition("%")
    if percent and not re.fullmatch(r"[1-9]\d*", limit):
        raise ValueError(f"{limit!r} is not a number of simultaneous runs")
    found: set[int] = set()
    for part in parts.split(","):
        match = _PART.fullmatch(part)
        if match is None or not match.group().isascii():
            raise ValueError(f"{part!r} is not an index or a range")
        first, last, step = int(match.group(1)), int(match.group(2) or match.group(1)), int(match.group(3) or 1)
        if not 0 <= last - first < MAX_INDICES * step or len(found) > MAX_INDICES:
            raise ValueError(f"{part!r} is reversed or is too long")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def array_run(base: Path, index: int) -> RunDir:
    """The directory of the run with this index."""
    return RunDir(base.with_name(f"{base.name}-{index}"))


def array_id(run_dir: RunDir) -> str:
    """The id that all runs of one array share."""
    return run_dir.run_id.rpartition("-")[0]


def array_run_by_variable(base: Path, index_variable: str) -> RunDir:
    """The directory of a run, with the scheduler's index variable in its name.

    All runs of an array share one script. The shell expands the variable when the script runs.
    """
    return RunDir(base.with_name(f"{base.name}-{shell_variable(index_variable)}"))
