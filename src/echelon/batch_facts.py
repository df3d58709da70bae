"""What both sides must know alike of a batch scheduler: which variables are a job's own, and how its tools say that
nobody answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Facts:
    prefixes: tuple[str, ...]
    """How variables begin that describe a job, or change what the tools do."""
    kept: frozenset[str]
    """Those among them that say whom to talk to, and as whom."""
    out_of_reach: tuple[str, ...]
    """What the tools say when the controller does not answer, so that trying again may help."""

    def outside(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment without what belongs to a job around us: its size, its place, its ranks."""
        return {n: value for n, value in environ.items() if n in self.kept or not n.startswith(self.prefixes)}

    def nobody_answers(self, words: str) -> bool:
        return any(sign.lower() in words.lower() for sign in self.out_of_reach)


SLURM = Facts(
    prefixes=("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_", "OMPI_COMM_WORLD_"),
    kept=frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}),
    out_of_reach=(
        "Unable to contact slurm controller", "Socket timed out", "Connection refused", "Connection timed out",
        "Zero Bytes were transmitted", "Slurm backup controller in standby", "Resource temporarily unavailable",
        "temporarily unable to accept job",
    ),
)  # fmt: skip
PBS = Facts(
    prefixes=("PBS_",),
    kept=frozenset(
        {"PBS_DEFAULT", "PBS_SERVER", "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_PRIMARY", "PBS_SECONDARY"}
    ),
    out_of_reach=(
        "cannot connect to server", "Connection refused", "Connection timed out", "Communication failure",
        "Premature end of message", "End of File", "No route to host", "Server is shutting down",
    ),
)  # fmt: skip

WISHES_OF_THE_JOB = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_GPU"),
    *("SLURM_NNODES", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_DISTRIBUTION", "SLURM_ARBITRARY_NODELIST"),
    *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_CPU_BIND", "SLURM_MEM_BIND"),
    *("SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_EXCLUSIVE", "SLURM_OVERLAP", "SLURM_EXPORT_ENV", "SLURM_GRES"),
)
"""What srun would read as wishes for a step, but were those of the whole job, or of the shell around us."""
KEPT_IN_A_STEP = frozenset(
    {"SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER"}
    | {"SLURM_RESTART_COUNT", "SLURM_MPI_TYPE"}
)
KEPT_BEGINNINGS = ("SLURM_JOB_", "SLURM_ARRAY_", "SLURM_SUBMIT_")


def of_this_step(environ: Iterable[str]) -> list[str]:
    """What describes the step around us, or would be read as a wish for the next one: to be left out of it. Pure."""
    ours = (name for name in environ if name.startswith(("SLURM_", "SRUN_", "PMI_", "PMIX_")))
    return sorted(name for name in ours if name not in KEPT_IN_A_STEP and not name.startswith(KEPT_BEGINNINGS))
