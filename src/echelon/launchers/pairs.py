"""Which launchers make no sense where, and which of their options are not the user's to set. Pure."""

from __future__ import annotations

from typing import NamedTuple

from echelon.job import Job
from echelon.launchers import launcher_of


class Objection(NamedTuple):
    why: str
    hint: str


def objection(launcher: str, scheduler: str, environment: str, *, in_slurm: bool) -> Objection | None:
    """`in_slurm` tells of which kind the allocation is that the run is to use."""
    on_slurm = scheduler == "slurm" or (scheduler == "allocation" and in_slurm)
    if launcher == "srun" and not on_slurm:
        return Objection("srun starts tasks of a Slurm job, and here is none", "--launcher ranks, or --on slurm")
    if launcher == "mpirun" and scheduler == "ssh":
        why = "mpirun on the first host would have to reach the others by itself, and find there what this one has"
        return Objection(why, "--launcher ranks, or torchrun: either is started on each host from here")
    if launcher == "mpirun" and environment == "pyxis":
        why = "pyxis encloses what srun starts, and the ranks would be started by mpirun"
        return Objection(why, "--launcher srun, or --env enroot")
    return None


def taken_option(job: Job) -> tuple[str, str] | None:
    """An option for the launcher that is decided by us, and the setting of ours that does it, if there is one."""
    if not job.launching.options:
        return None
    ours = launcher_of(job.launcher).OURS
    for name in job.launching.options:
        plain = name.replace("_", "-")
        if plain in ours:
            return name, ours[plain]
    return None
