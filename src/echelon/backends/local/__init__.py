"""`--on local`: this machine rehearses N nodes. It needs no root and no daemon. The job is a detached process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from echelon.backends import Backend, Resolution, Settings
from echelon.backends.process import ProcessBackend, process_script

if TYPE_CHECKING:
    from echelon.backends.hosts import Hosts
    from echelon.job import Job
    from echelon.run_dir import RunDir


class Local(ProcessBackend):
    name = "local"
    label = "this machine"
    rehearses_nodes = True
    detects_gpus = True

    def detect(self, environ: Mapping[str, str], *, use_allocation: bool) -> str:  # noqa: ARG002  the last backend in detection
        return "neither sbatch nor qsub on PATH"

    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        """Divides the GPUs of this machine between the rehearsed nodes."""
        from echelon.system.machine import count_gpus, resolve_gpus_per_node

        gpus = resolve_gpus_per_node(
            asked=settings.get("gpus_per_node"),
            nodes=settings.get("nodes") + settings.get("spare_nodes"),
            present=count_gpus(environ),
            cpu=settings.get("cpu"),
        )
        return Resolution(gpus_per_node=gpus)

    def submission_summary(self, job: Job, native_id: str) -> str:  # noqa: ARG002
        return ""

    def render(self, job: Job, run_dir: RunDir) -> str:
        remark = f"{job.resources.nodes} rehearsed nodes, {job.resources.procs_per_node} ranks on each"
        return process_script(job, run_dir, remark)

    def plain_script_lines(self, job: Job, environ: Mapping[str, str]) -> Iterable[str]:
        from echelon.backends.local import plain

        return plain.script_lines(job, environ)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:  # noqa: ARG002
        from echelon.backends.local.hosts import LocalHosts

        return LocalHosts(job, environ)


BACKEND: Backend = Local()
