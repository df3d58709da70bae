"""`--on ssh`: hosts without a scheduler. The job is a detached process on this machine with one connection per host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from echelon.backends import Backend, Resolution, Settings
from echelon.backends.process import ProcessBackend

if TYPE_CHECKING:
    from echelon.backends.hosts import Hosts
    from echelon.job import Job
    from echelon.run_dir import RunDir


class Ssh(ProcessBackend):
    name = "ssh"
    label = "ssh"
    shares_file_system = False
    supported_settings = frozenset({"hosts", "hostfile", "interface"})
    mpirun_reaches_nodes = False

    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        from echelon.backends.ssh import control

        return control.resolve(settings, environ)

    def submission_summary(self, job: Job, native_id: str) -> str:
        from echelon.backends.ssh import control

        return control.submission_summary(job, native_id)

    def render(self, job: Job, run_dir: RunDir) -> str:
        from echelon.backends.ssh import control

        return control.render(job, run_dir)

    def plain_script_lines(self, job: Job, environ: Mapping[str, str]) -> Iterable[str]:
        from echelon.backends.ssh import plain

        return plain.script_lines(job, environ)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        from echelon.backends.ssh.hosts import SshHosts

        return SshHosts(job, run_dir, environ)


BACKEND: Backend = Ssh()
