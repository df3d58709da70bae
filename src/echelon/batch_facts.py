"""What both sides must know alike of a batch scheduler: which variables are a job's own, and how its tools say that
nobody answers."""

from __future__ import annotations

from collections.abc import Mapping
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
