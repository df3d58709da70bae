"""The environ that the supervisor sends, merged with that of the host, and the record of it without secrets."""

from __future__ import annotations

import base64
import os
import select
import time
from collections.abc import Mapping
from typing import Any

from echelon.backends.pbs.environment import HOST_VARIABLES, KEY_VARIABLE
from echelon.environments import CONTAINERS
from echelon.environments.containers import ENCODED_VARIABLE, describes_host
from echelon.job import Job, mask_secrets
from echelon.placement import threads_per_rank
from echelon.wire.channel import Channel, ChannelClosed
from echelon.wire.messages import SupervisorEnviron, from_wire

ADDED_VARIABLES = (
    "OMP_NUM_THREADS",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "PYTHONPATH",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "CUDA_VISIBLE_DEVICES",
)


def added_variables(environ: dict[str, str]) -> dict[str, str]:
    """The variables that the agent adds to the environ of its node."""
    return {name: environ[name] for name in ADDED_VARIABLES if name in environ}


def decode_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the variables that node.sh has encoded because enroot cannot pass their values unchanged."""
    pairs = base64.b64decode(environ.get(ENCODED_VARIABLE, "")).split(b"\0")
    found = dict(os.fsdecode(pair).partition("=")[::2] for pair in pairs if pair)
    return {**{name: value for name, value in environ.items() if name != ENCODED_VARIABLE}, **found}


def format_environ(environ: dict[str, str]) -> bytes:
    """The content of the .env file: one variable per line, secrets masked."""
    text = "".join(f"{name}={value!r}\n" for name, value in sorted(mask_secrets(environ).items()))
    return text.encode(errors="surrogateescape")


PATH_LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def wait_for_environment(channel: Channel, seconds: float) -> tuple[Mapping[str, str], list[dict[str, Any]]]:
    """The variables of the supervisor's first message, and the messages received with it. Raises ChannelClosed."""
    deadline = time.monotonic() + seconds
    poller = select.poll()
    poller.register(channel.fileno(), select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        poller.poll(left * 1000)
        messages = channel.receive()
        if not messages:
            continue
        first = from_wire(messages[0])
        if not isinstance(first, SupervisorEnviron):
            break
        return first.variables, messages[1:]
    raise ChannelClosed("the supervisor did not send its environ")


def merge_environ(sent: Mapping[str, str], own: Mapping[str, str], job: Job) -> dict[str, str]:
    """Merges the variables that the supervisor sent with this process's own.

    If the job is not enclosed, the sent values win. Otherwise the values that node.sh has set win, except for secrets.
    The variables in PATH_LISTS are joined, own entries first. In a container, sent variables that describe the host are
    dropped.
    """
    if not job.is_enclosed:
        return {**own, **sent}
    in_container = job.environment in CONTAINERS
    usable = {name: value for name, value in sent.items() if not (in_container and describes_host(name))}
    lists = {name: _join_paths(own[name], usable[name]) for name in PATH_LISTS if name in own and name in usable}
    secrets = {name: sent[name] for name in job.secret_env if name in sent}
    return {**usable, **own, **lists, **secrets}


def _join_paths(first: str, second: str) -> str:
    return os.pathsep.join(dict.fromkeys((*first.split(os.pathsep), *second.split(os.pathsep))))


def host_environ(sent: Mapping[str, str], own: Mapping[str, str], job: Job) -> dict[str, str]:
    """The variables that the supervisor sent, with this host's own values for PBS_* and HOST_VARIABLES.

    For an enclosed job they are merged with this process's own, as in `merge_environ`. PBS sets OMP_NUM_THREADS as if
    one process had all the CPUs, so the value is divided among the ranks.
    """
    own = {name: value for name, value in own.items() if name != KEY_VARIABLE}  # the key is not for ranks or .env
    kept = {name: value for name, value in own.items() if name in HOST_VARIABLES or name.startswith("PBS_")}
    environ = {**(merge_environ(sent, own, job) if job.is_enclosed else sent), **kept}
    cpus = sent.get("NCPUS", "")
    if cpus.isdecimal() and environ.get("OMP_NUM_THREADS") == cpus:
        environ["OMP_NUM_THREADS"] = str(threads_per_rank(int(cpus), job.resources.procs_per_node))
    return environ
