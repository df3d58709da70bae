"""The environment that a node gives its ranks, and how it is written down without its secrets."""

from __future__ import annotations

import os
import sys

from echelon.job import Job, masked
from echelon.plan import threads_per_rank


def _nodes_here(job: Job) -> int:
    """Rehearsed nodes share one machine's cores."""
    return job.resources.nodes if job.scheduler == "local" else 1


OURS = (
    *("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PYTHONPATH", "PYTORCH_NVML_BASED_CUDA_CHECK"),
    "CUDA_VISIBLE_DEVICES",
)


def ours(environ: dict[str, str]) -> dict[str, str]:
    """What a node adds to the environment that it was given."""
    return {name: environ[name] for name in OURS if name in environ}


def node_environ(environ: dict[str, str], job: Job) -> dict[str, str]:
    """What every rank of this node finds in its environment, before its own rank's variables."""
    cores = len(os.sched_getaffinity(0)) // _nodes_here(job)
    ours = {"OMP_NUM_THREADS": str(threads_per_rank(cores, job.resources.procs_per_node))}
    if job.scheduler == "local":  # rehearsed nodes live on the loopback device, whatever the host is called
        ours |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    fixed = {
        "PYTHONPATH": os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), sys.argv[0]))),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for GPUs must not poison the forked ranks
    }
    if job.resources.gpus_per_node == 0:
        fixed["CUDA_VISIBLE_DEVICES"] = ""
    return {**ours, **environ, **job.env, **fixed}


def shown(environ: dict[str, str]) -> bytes:
    """As a file, one variable a line."""
    text = "".join(f"{name}={value!r}\n" for name, value in sorted(masked(environ).items()))
    return text.encode(errors="surrogateescape")
