"""The environment that a node gives its ranks, and how it is written down without its secrets."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping

from echelon.environments.host_variables import ENCODED
from echelon.job import Job, masked
from echelon.node.project import python_path, submit_dir
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
        "PYTHONPATH": os.pathsep.join((*python_path({**environ, **job.env}, job), sys.argv[0])),
        "ECHELON_SUBMIT_DIR": submit_dir(job),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for GPUs must not poison the forked ranks
    }
    if job.resources.gpus_per_node == 0:
        fixed["CUDA_VISIBLE_DEVICES"] = ""
    return {**ours, **environ, **job.env, **fixed}


def decoded(environ: Mapping[str, str]) -> dict[str, str]:
    """With the variables that enroot could not have passed as they are, and that node.sh has encoded for it."""
    pairs = base64.b64decode(environ.get(ENCODED, "")).split(b"\0")
    found = dict(os.fsdecode(pair).partition("=")[::2] for pair in pairs if pair)
    return {**{name: value for name, value in environ.items() if name != ENCODED}, **found}


def shown(environ: dict[str, str]) -> bytes:
    """As a file, one variable a line."""
    text = "".join(f"{name}={value!r}\n" for name, value in sorted(masked(environ).items()))
    return text.encode(errors="surrogateescape")
