"""The environment for another step of the same Slurm job, from inside of one of its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KEPT_PREFIXES = ("SLURM_JOB_", "SLURM_ARRAY_", "SLURM_SUBMIT_")
KEPT = frozenset(
    {"SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER"}
    | {"SLURM_RESTART_COUNT", "SLURM_MPI_TYPE"}
)


def wishes(environ: Iterable[str]) -> list[str]:
    """What describes the step around us, or would be read as a wish for the next one: to be left out of it."""
    ours = (name for name in environ if name.startswith(("SLURM_", "SRUN_", "PMI_", "PMIX_")))
    return sorted(name for name in ours if name not in KEPT and not name.startswith(KEPT_PREFIXES))


def is_inside(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("SLURM_JOB_ID"))
