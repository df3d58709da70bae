"""A plain script that rehearses the nodes of a job on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
from echelon.job import Job


def script_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
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
