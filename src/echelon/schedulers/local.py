"""`--on local`: this machine poses as N nodes. No root, no daemon; a detached process is the job."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.job import Job
from echelon.machine import count_gpus, fit_gpus
from echelon.run_dir import RunDir
from echelon.schedulers import Fit, Wishes
from echelon.schedulers.detached import cancel, pause, query, submit
from echelon.schedulers.script import plain_script

__all__ = ("STARTS_HERE", "cancel", "fit", "pause", "query", "render", "submit", "summary")

STARTS_HERE = True


def fit(wishes: Wishes, environ: Mapping[str, str]) -> Fit:
    """The GPUs of this machine are shared out among the rehearsed nodes."""
    nodes = wishes.get("nodes") + wishes.get("spare_nodes")
    gpus = fit_gpus(asked=wishes.get("gpus_per_node"), nodes=nodes, present=count_gpus(environ), cpu=wishes.get("cpu"))
    return Fit(gpus_per_node=gpus)


def summary(job: Job, native_id: str) -> str:  # noqa: ARG001  every scheduler is asked the same way
    return ""


def render(job: Job, run_dir: RunDir) -> str:
    remark = f"{job.resources.nodes} rehearsed nodes, {job.resources.procs_per_node} ranks on each"
    return plain_script(job, run_dir, remark)
