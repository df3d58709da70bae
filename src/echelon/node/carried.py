"""Environments that no scheduler carries: from the login node into the job script, from the supervisor to its agents.

The channel proves who speaks, and hides nothing: variables cross the cluster's own network as they are. They are in
no command line, and on no disk but sealed.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echelon.command import exports
from echelon.environments import CONTAINERS
from echelon.environments.host_variables import describes_host
from echelon.job import Job
from echelon.node.channel import Channel, ChannelClosed
from echelon.node.messages import Environment, from_wire
from echelon.plan import threads_per_rank
from echelon.run_dir import RunDir
from echelon.sealed import KEY_VARIABLE, unseal

OF_THE_HOST = frozenset({"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "TMPDIR", "HOSTNAME"})
"""What differs from host to host: an agent's own value counts, or none."""
LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def main(run_path: Path) -> int:
    """For the job script: what it was submitted from, as lines that its shell reads; none without a key."""
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        return 0
    file = RunDir(run_path).sealed
    try:
        environ = unseal(file.read_bytes(), key)
    except (OSError, ValueError) as error:
        print(f"the environment of this run cannot be read: {file}: {error}", file=sys.stderr)
        return 3
    sys.stdout.buffer.write("\n".join(exports(environ)).encode(errors="surrogateescape"))
    return 0


def wait_for_environment(channel: Channel, seconds: float) -> tuple[Mapping[str, str], list[dict[str, Any]]]:
    """The supervisor's first message, and what came right behind it; raises ChannelClosed."""
    deadline = time.monotonic() + seconds
    poller = select.poll()
    poller.register(channel.fileno(), select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        poller.poll(left * 1000)
        messages = channel.receive()
        if not messages:
            continue
        first = from_wire(messages[0])
        if not isinstance(first, Environment):
            break
        return first.variables, messages[1:]
    raise ChannelClosed("the supervisor sent no environment")


def sent_along(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the supervisor's environment holds on every host."""
    return {
        name: value
        for name, value in environ.items()
        if name not in OF_THE_HOST and name != KEY_VARIABLE and not name.startswith("PBS_")
    }


def blended(carried: Mapping[str, str], own: Mapping[str, str], job: Job) -> dict[str, str]:
    """What was sent along wins, but not over what node.sh has set: there it is only added, but for secrets."""
    if not job.is_enclosed:
        return {**own, **carried}
    contained = job.environment in CONTAINERS
    usable = {name: value for name, value in carried.items() if not (contained and describes_host(name))}
    lists = {name: _joined(own[name], usable[name]) for name in LISTS if name in own and name in usable}
    secrets = {name: carried[name] for name in job.secret_env if name in carried}
    return {**usable, **own, **lists, **secrets}


def _joined(first: str, second: str) -> str:
    return os.pathsep.join(dict.fromkeys((*first.split(os.pathsep), *second.split(os.pathsep))))


def host_environ(carried: Mapping[str, str], own: Mapping[str, str], job: Job) -> dict[str, str]:
    """What was sent along, with what is this host's own. PBS counts threads as if one process had all the CPUs."""
    own = {name: value for name, value in own.items() if name != KEY_VARIABLE}  # not for ranks, nor for their .env
    kept = {name: value for name, value in own.items() if name in OF_THE_HOST or name.startswith("PBS_")}
    environ = {**(blended(carried, own, job) if job.is_enclosed else carried), **kept}
    cpus = carried.get("NCPUS", "")
    if cpus.isdecimal() and environ.get("OMP_NUM_THREADS") == cpus:
        environ["OMP_NUM_THREADS"] = str(threads_per_rank(int(cpus), job.resources.procs_per_node))
    return environ
