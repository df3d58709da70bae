"""A plain script that rehearses the nodes of a job on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from echelon.job import Job
from echelon.plain.entering import node_function
from echelon.plain.failing import RANK, ending
from echelon.plain.meeting import FREE_PORT, port_lines
from echelon.plain.once_more import AGAIN, once_more
from echelon.plain.opening import heading, variables
from echelon.plain.together import OWN_STATE, START, launch_and_watch, waiting


def lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    yield from heading(job, "Run it: bash FILE")
    yield from variables(job, "export {name} first")
    yield "# The nodes are rehearsed on this machine. No --standalone: it takes no notice of --nnodes."
    yield "export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo"
    yield from port_lines(job, "$$")
    yield FREE_PORT
    yield 'export JOB_STATE # ranks find "notice" in it when they should stop soon'
    yield from OWN_STATE
    yield from RANK
    yield from node_function(job, *_gpus(job), *launch_and_watch(job, environ), folder=job.cwd)
    yield "export -f note rank"
    yield from START
    yield f'for n in {{0..{job.resources.nodes - 1}}}; do start node "$n" & done'
    yield ending(job, "INT TERM HUP", "note 143", 'touch "$JOB_STATE/stop"')
    yield from waiting(job, until_the_limit=True)
    yield from once_more(job, "${TRIES:-0}", AGAIN)


def _gpus(job: Job) -> Iterator[str]:
    """The nodes share this machine's."""
    count = job.resources.gpus_per_node
    if count == 0:
        yield "export CUDA_VISIBLE_DEVICES="
    elif job.resources.nodes > 1:
        yield f"CUDA_VISIBLE_DEVICES=$(seq -s, $(($1 * {count})) $(($1 * {count} + {count - 1})))"
        yield "export CUDA_VISIBLE_DEVICES"
