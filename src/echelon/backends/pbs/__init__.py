"""`--on pbs`: a batch job of OpenPBS or PBS Pro, also at sites with their own dialect, such as NCI's Gadi."""

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


class Pbs(BatchBackend):
    name = "pbs"
    label = "PBS"
    supported_settings = QUEUE_SETTINGS | {"pbs_dialect", "queues"}
    native_option = NativeOption(
        help="Any other qsub option, unchanged; repeatable. NAME is a resource of the job (-l NAME=VALUE: "
        "storage=gdata/ab12, jobfs=100GB, wd), chunk.NAME a resource of every chunk (select=..:NAME=VALUE), W.NAME an "
        "attribute (-W NAME=VALUE: W.group_list=ab12), and a single letter an option of qsub (a=1200 is -a 1200).",
        name_pattern=r"(chunk\.|W\.)?[A-Za-z][A-Za-z0-9_-]*",
        hint="use a resource, chunk.RESOURCE, W.ATTRIBUTE or one letter, for example --pbs storage=gdata/ab12",
    )
    job_id_variable = "PBS_JOBID"
    array_index_variable = "PBS_ARRAY_INDEX"

    def detect(self, environ: Mapping[str, str], *, use_allocation: bool) -> str | None:  # noqa: ARG002
        """Slurm comes first in detection, so an sbatch on PATH has no configuration here."""
        from echelon.system.machine import find_program

        if not find_program("qsub", environ):
            return None
        beside = "; sbatch is too, but has no Slurm configuration" if find_program("sbatch", environ) else ""
        return f"qsub is on PATH{beside}"

    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        from echelon.backends.pbs import control

        return control.resolve(settings, environ)

    def submission_summary(self, job: Job, native_id: str) -> str:
        from echelon.backends.pbs import control

        return control.submission_summary(job, native_id)

    def render(self, job: Job, run_dir: RunDir) -> str:
        from echelon.backends.pbs import control

        return control.render(job, run_dir)

    def plain_script_lines(self, job: Job, environ: Mapping[str, str]) -> Iterable[str]:
        from echelon.backends.pbs import plain

        return plain.script_lines(job, environ)

    def submit(self, run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:
        from echelon.backends.pbs import control

        return control.submit(run_dir, environ, other_runs)

    def check_request(self, job: Job, script: str, environ: Mapping[str, str]) -> str | None:
        from echelon.backends.pbs import control

        return control.check_request(job, script, environ)

    def element_id(self, native_id: str, index: int) -> str:
        from echelon.backends.pbs import control

        return control.element_id(native_id, index)

    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        from echelon.backends.pbs import control

        return control.query(run_dirs)

    def cancel(self, run_dir: RunDir, *, force: bool = False) -> bool:
        from echelon.backends.pbs import control

        return control.cancel(run_dir, force=force)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        from echelon.backends.pbs.hosts import PbsHosts

        return PbsHosts(job, run_dir, environ)

    def reason_to_exit(self, run_dir: RunDir, environ: Mapping[str, str]) -> EarlyExit | None:
        from echelon.backends.pbs.failover import take_over_run
        from echelon.errors import LEASE_HELD

        refusal = take_over_run(run_dir, environ)
        return None if refusal is None else EarlyExit(f"{refusal}; exiting", LEASE_HELD)

    def requeue_without_supervisor(self, job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
        from echelon.backends.pbs.failover import continue_without_supervisor

        continue_without_supervisor(job, attempt, environ)


BACKEND: Backend = Pbs()
