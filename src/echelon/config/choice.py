"""Which scheduler is meant when nobody says."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.config.layers import Setting
from echelon.machine import find_program


def chosen(environ: Mapping[str, str], *, inside: bool) -> Setting:
    """With why it was chosen for its origin; `inside` may use the allocation that this is run in."""
    name, why = _choice(environ, inside)
    return Setting(key="on", value=name, origin=why)


def _choice(environ: Mapping[str, str], inside: bool) -> tuple[str, str]:
    if inside and environ.get("SLURM_JOB_ID") and environ.get("SLURM_JOB_NODELIST"):
        return "allocation", f"inside of Slurm job {environ['SLURM_JOB_ID']}"
    if inside and environ.get("PBS_JOBID") and environ.get("PBS_NODEFILE"):
        return "allocation", f"inside of PBS job {environ['PBS_JOBID']}"
    for program, name in (("sbatch", "slurm"), ("qsub", "pbs")):
        if find_program(program, environ):
            return name, f"{program} is on PATH"
    return "local", "neither sbatch nor qsub on PATH"
