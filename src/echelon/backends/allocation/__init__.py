"""`--on allocation`: uses the nodes of the surrounding Slurm or PBS job and submits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from echelon.backends import Backend, Resolution, Settings
from echelon.backends.process import ProcessBackend

if TYPE_CHECKING:
    from echelon.backends.hosts import Hosts
    from echelon.job import Job
    from echelon.run_dir import RunDir
    from echelon.states import JobStatus


class Allocation(ProcessBackend):
    name = "allocation"
    label = "this allocation"
    detects_gpus = True
    supported_settings = frozenset({"cpus", "interface"})
    may_use_srun = True

    def uses_srun(self, environ: Mapping[str, str]) -> bool:
        return bool(environ.get("SLURM_JOB_ID"))

    def detect(self, environ: Mapping[str, str], *, use_allocation: bool) -> str | None:
        if use_allocation and environ.get("SLURM_JOB_ID") and environ.get("SLURM_JOB_NODELIST"):
            return f"inside Slurm job {environ['SLURM_JOB_ID']}"
        if use_allocation and environ.get("PBS_JOBID") and environ.get("PBS_NODEFILE"):
            return f"inside PBS job {environ['PBS_JOBID']}"
        return None

    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        from echelon.backends.allocation import control

        return control.resolve(settings, environ)

    def submission_summary(self, job: Job, native_id: str) -> str:
        from echelon.backends.allocation import control

        return control.submission_summary(job, native_id)

    def render(self, job: Job, run_dir: RunDir) -> str:
        from echelon.backends.allocation import control

        return control.render(job, run_dir)

    def submit(self, run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:  # noqa: ARG002
        from echelon.backends.allocation import control

        return control.submit(run_dir, environ)

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        from echelon.backends.allocation import control

        return control.query(run_dirs)

    def cancel(self, run_dir: RunDir, *, force: bool = False) -> bool:  # noqa: ARG002
        from echelon.backends.allocation import control

        return control.cancel(run_dir)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        """The allocation outlives an attempt, and the next attempt starts in it."""
        if self.uses_srun(environ):
            from echelon.backends.slurm.hosts import SlurmHosts

            return SlurmHosts(job, run_dir, environ, keeps_allocation=True)
        from echelon.backends.pbs.hosts import PbsHosts

        return PbsHosts(job, run_dir, environ, keeps_allocation=True)


BACKEND: Backend = Allocation()
