"""`--on local`: this machine rehearses N nodes. It needs no root and no daemon. The job is a detached process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
        return plain_script_lines(job, environ)

    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        from echelon.backends.local_hosts import LocalHosts

        return LocalHosts(job, environ, run_dir.path)


BACKEND: Backend = Local()


def plain_script_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    """A plain script that rehearses the nodes of a job on this machine."""
    from echelon.backends.plain import (
        FREE_PORT_LINE,
        RANK_FUNCTIONS,
        RERUN_SCRIPT,
        START_FUNCTION,
        TEMPORARY_STATE,
        heading_lines,
        launch_and_watch_lines,
        node_function,
        port_lines,
        rerun_lines,
        signal_trap,
        variable_lines,
        wait_lines,
    )

    yield from heading_lines(job, "Run it: bash FILE")
    yield from variable_lines(job, "export {name} first")
    yield "# The nodes are rehearsed on this machine. Not with --standalone: it ignores --nnodes."
    yield "export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo"
    yield from port_lines(job, "$$")
    yield FREE_PORT_LINE
    yield 'export JOB_STATE # a file "notice" appears here before the time limit'
    yield from TEMPORARY_STATE
    yield from RANK_FUNCTIONS
    yield from node_function(job, *_gpu_lines(job), *launch_and_watch_lines(job, environ), folder=job.cwd)
    yield "export -f note rank"
    yield from START_FUNCTION
    yield f'for n in {{0..{job.resources.nodes - 1}}}; do start node "$n" & done'
    yield signal_trap(job, "INT TERM HUP", "note 143", 'touch "$JOB_STATE/stop"')
    yield from wait_lines(job, until_the_limit=True)
    yield from rerun_lines(job, "${TRIES:-0}", RERUN_SCRIPT)


def _gpu_lines(job: Job) -> Iterator[str]:
    """Divides the GPUs of this machine between the nodes."""
    count = job.resources.gpus_per_node
    if count == 0:
        yield "export CUDA_VISIBLE_DEVICES="
    elif job.resources.nodes > 1:
        yield f"CUDA_VISIBLE_DEVICES=$(seq -s, $(($1 * {count})) $(($1 * {count} + {count - 1})))"
        yield "export CUDA_VISIBLE_DEVICES"
