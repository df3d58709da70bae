"""`--on slurm`: a batch job of a Slurm cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from echelon.backends import Backend, EarlyExit, NativeOption, Resolution, Settings
from echelon.backends.batch import QUEUE_SETTINGS, BatchBackend

if TYPE_CHECKING:
    from echelon.attempt_dir import AttemptDir
    from echelon.backends.hosts import Hosts
    from echelon.job import Job
    from echelon.run_dir import RunDir
    from echelon.states import JobStatus


class Slurm(BatchBackend):
    name = "slurm"
    label = "Slurm"
    supported_settings = QUEUE_SETTINGS | {
        "gpu_type",
        "qos",
        "constraint",
        "reservation",
        "nodelist",
        "exclude",
        "comment",
        "licenses",
        "gres",
    }
    native_option = NativeOption(
        help="Any other sbatch option, unchanged; repeatable.",
        name_pattern=r"[a-z][a-z0-9-]*",
        hint="use sbatch's long option name without dashes, for example --slurm exclusive",
    )
    job_id_variable = "SLURM_JOB_ID"
    array_index_variable = "SLURM_ARRAY_TASK_ID"
    may_use_srun = True

    def detect(self, environ: Mapping[str, str], *, use_allocation: bool) -> str | None:  # noqa: ARG002
        """If sbatch has no configuration and a PBS server answers, PBS is chosen instead."""
        from echelon.backends.batch_tools import pbs_answers, slurm_is_configured
        from echelon.system.machine import find_program

        if not find_program("sbatch", environ):
            return None
        if find_program("qsub", environ) and not slurm_is_configured(environ) and pbs_answers(environ):
            return None
        return "sbatch is on PATH"

    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        from echelon.backends.slurm import control

        return control.resolve(settings, environ)

    def submission_summary(self, job: Job, native_id: str) -> str:
        from echelon.backends.slurm import control

        return control.submission_summary(job, native_id)

    def render(self, job: Job, run_dir: RunDir) -> str:
        from echelon.backends.slurm import control

        return control.render(job, run_dir)

    def plain_script_lines(self, job: Job, environ: Mapping[str, str]) -> Iterable[str]:
        from echelon.backends.slurm import plain

        return plain.script_lines(job, environ)

    def submit(self, run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:
        from echelon.backends.slurm import control

        return control.submit(run_dir, environ, other_runs)

    def check_request(self, job: Job, script: str, environ: Mapping[str, str]) -> str | None:
        from echelon.backends.slurm import control

        return control.check_request(job, script, environ)

    def element_id(self, native_id: str, index: int) -> str:
        from echelon.backends.slurm import control

        return control.element_id(native_id, index)

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        from echelon.backends.slurm import control

        return control.query(run_dirs)

    def cancel(self, run_dir: RunDir, *, force: bool = False) -> bool:
        from echelon.backends.slurm import control

        return control.cancel(run_dir, force=force)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        from echelon.backends.slurm.hosts import SlurmHosts

        return SlurmHosts(job, run_dir, environ)

    def reason_to_exit(self, run_dir: RunDir, environ: Mapping[str, str]) -> EarlyExit | None:
        from echelon.backends.slurm.requeue import exit_code_before_restart

        ended = exit_code_before_restart(run_dir, environ)
        why = f"the run ended before Slurm restarted its job; to run it again: echelon resume {run_dir.run_id}"
        return None if ended is None else EarlyExit(why, ended)

    def requeue_without_supervisor(self, job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
        from echelon.backends.slurm.requeue import requeue_after_loss_of_first_node

        requeue_after_loss_of_first_node(job, attempt, environ)


BACKEND: Backend = Slurm()
