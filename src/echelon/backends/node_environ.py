"""The environ of a node: what all its ranks share."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path

from echelon.backends import backend
from echelon.job import Job
from echelon.placement import threads_per_rank
from echelon.system.project import python_path, submit_dir

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
IMPORTER_FD, IMPORTER_DIGEST = "ECHELON_IMPORTER_FD", "ECHELON_IMPORTER_DIGEST"
"""Variables of an agent: the link to the importer, and the digest of the environ in which it imports torch."""


def node_environ(environ: Mapping[str, str], job: Job) -> dict[str, str]:
    """The environ that all ranks of this node share, without the variables of each rank."""
    rehearses = backend(job.scheduler).rehearses_nodes
    nodes_here = job.resources.nodes if rehearses else 1  # rehearsed nodes share one machine's cores
    cores = len(os.sched_getaffinity(0)) // nodes_here
    defaults = {"OMP_NUM_THREADS": str(threads_per_rank(cores, job.resources.procs_per_node))}
    if rehearses:  # rehearsed nodes use the loopback interface, independent of the host name
        defaults |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    fixed = {
        "PYTHONPATH": os.pathsep.join((*python_path({**environ, **job.env}, job), sys.argv[0])),
        "ECHELON_SUBMIT_DIR": submit_dir(job),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # without it, a query for GPUs breaks CUDA in forked ranks
    }
    if job.resources.gpus_per_node == 0:
        fixed[GPU_VARIABLE] = ""
    return {**defaults, **_login_defaults(), **environ, **job.env, **fixed}


def _login_defaults() -> dict[str, str]:
    """Variables that programs expect and a container without a login shell may lack."""
    home = str(Path("~").expanduser()) if _has_home() else "/"
    return {"HOME": home, "PATH": os.defpath}


def _has_home() -> bool:
    """Whether HOME is set or the password database has this user."""
    try:
        return "HOME" in os.environ or bool(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return False


def environ_digest(environ: Mapping[str, str]) -> str:
    """Equal for two environs that differ at most in their GPUs, which no import of torch reads."""
    items = sorted((name, value) for name, value in environ.items() if name != GPU_VARIABLE)
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()
