"""How plain scripts begin: what they are, and the variables of the job."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.command import exporting
from echelon.job import Job
from echelon.plain import launcher_name
from echelon.wording import counted

SHELLCHECK = "# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes"


def heading(job: Job, how: str) -> tuple[str, ...]:
    resources = job.resources
    nodes, ranks = counted(resources.nodes, "node"), counted(resources.procs_per_node, "rank")
    size = f"{nodes} x {ranks}, started by {launcher_name(job)}"
    return "#!/bin/bash", f"# {job.name}: {size}. Nothing of echelon is needed there. {how}", SHELLCHECK


def variables(job: Job, bring: str) -> Iterator[str]:
    """Those of the job; secrets are only looked for."""
    if env := _written(job):
        yield from exporting(env)
    for name in job.secret_env:
        yield f': "${{{name}:?is a secret, so it is not written here: {bring.format(name=name)}}}"'


def names(job: Job) -> list[str]:
    """Of all variables that `variables` sets, for nodes that get none of them by themselves."""
    return sorted(_written(job))


def _written(job: Job) -> dict[str, str]:
    env = dict(job.env)
    if job.resources.cpus is not None:
        env.setdefault("OMP_NUM_THREADS", str(max(1, job.resources.cpus // job.resources.procs_per_node)))
    if job.interface is not None:
        env = {"GLOO_SOCKET_IFNAME": job.interface, "NCCL_SOCKET_IFNAME": job.interface, **env}
    return env
