"""Environment variables that break runs or make them slow."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.model import Check, Facts, Finding, Plan, error, items, mapping, number, warning
from echelon.job import mask_secrets
from echelon.system.cgroups import read_field

NAME = "variables"
PREFIXES = ("NCCL_", "GLOO_", "MASTER_", "TORCH_", "SLURM_CPU_BIND", "OMP_", "MKL_", "CUDA_", "HIP_VISIBLE", "ROCR_")
NAMES = ("PYTHONHOME", "LD_PRELOAD", "RANK", "WORLD_SIZE", "LOCAL_RANK", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY")
MORE_NAMES = ("https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")
STALE = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
SLOW = {
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_SHM_DISABLE": ("1",),
}
MOST_CHARACTERS = 200


def collect(plan: Plan) -> dict[str, Any]:  # noqa: ARG001  the same signature for all collectors
    """The variables without those that echelon sets for a rank, which hide those of the user."""
    if "ECHELON_RUN_ID" not in os.environ:
        return describe(os.environ)
    starter = parent_of(os.getppid())
    agent = read_environ(parent_of(starter))
    environ = {name: value for name, value in read_environ(starter).items() if name != "OMP_NUM_THREADS"}
    threads = {name: agent[name] for name in ("OMP_NUM_THREADS",) if name in agent}
    return describe({**environ, **threads})


def parent_of(pid: int) -> int:
    return read_field(Path(f"/proc/{pid}/status"), "PPid") or 1


def describe(environ: Mapping[str, str]) -> dict[str, Any]:
    kept = (*NAMES, *MORE_NAMES)
    chosen = {name: value for name, value in environ.items() if name.startswith(PREFIXES) or name in kept}
    return {
        "variables": {name: value[:MOST_CHARACTERS] for name, value in mask_secrets(chosen).items()},
        "interfaces": [name for _, name in socket.if_nameindex()],
        "cores": len(os.sched_getaffinity(0)),
    }


def read_environ(pid: int) -> dict[str, str]:
    """The variables that a process was started with. Those of this process if that one is not readable."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    return dict(os.fsdecode(pair).partition("=")[::2] for pair in pairs if pair)


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:
    variables = {name: str(value) for name, value in mapping(facts, "variables").items()}
    return [
        *_judge_stale(node, variables),
        *_judge_interfaces(node, variables, [str(name) for name in items(facts, "interfaces")]),
        *_judge_slow(node, variables, number(facts, "cores"), plan),
        *_judge_binding(node, variables),
        *_judge_devices(node, variables, plan),
        *_judge_proxies(node, variables),
    ]


def _judge_stale(node: str, variables: Mapping[str, str]) -> Iterator[Finding]:
    found = [name for name in STALE if name in variables]
    if found:
        shown = ", ".join(f"{name}={variables[name]}" for name in found)
        why = "left over from another job; torchrun and scripts that read them meet at the wrong place"
        yield warning(NAME, node, f"{shown} set", why, f"unset {' '.join(found)}")
    if "PYTHONHOME" in variables:
        why = f"PYTHONHOME={variables['PYTHONHOME']} makes every other Python load the wrong libraries"
        yield error(NAME, node, "PYTHONHOME is set", why, "unset PYTHONHOME")


def interface_matches(pattern: str, interfaces: Sequence[str]) -> bool:
    """NCCL's syntax: prefixes, `=` for exact names, `^` for all others. Gloo takes exact names, which match too."""
    negated = pattern.startswith("^")
    names = pattern.lstrip("^")
    exact = names.startswith("=")
    wanted = [name for name in names.lstrip("=").split(",") if name]
    fits = [name for name in interfaces if any(name == one or (not exact and name.startswith(one)) for one in wanted)]
    return len(fits) < len(interfaces) if negated else bool(fits)


def _judge_interfaces(node: str, variables: Mapping[str, str], interfaces: Sequence[str]) -> Iterator[Finding]:
    for name in INTERFACES:
        pattern = variables.get(name)
        if pattern and interfaces and not interface_matches(pattern, interfaces):
            why = f"the node has {', '.join(interfaces)}"
            fix = f"unset {name}; --interface NAME chooses the network on every node"
            yield error(NAME, node, f"{name}={pattern} names no interface", why, fix)


def _judge_slow(node: str, variables: Mapping[str, str], cores: float | None, plan: Plan) -> Iterator[Finding]:
    for name, values in SLOW.items():
        if variables.get(name, "").upper() in values:
            why = "meant for debugging; training is several times slower"
            yield warning(NAME, node, f"{name}={variables[name]}", why, f"unset {name}")
    threads = variables.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and cores and int(threads) * plan.ranks > 2 * cores:
        what = f"OMP_NUM_THREADS={threads} on {cores:.0f} cores"
        why = f"{plan.ranks} x {threads} threads share them"
        yield warning(NAME, node, what, why, "unset OMP_NUM_THREADS: echelon divides the cores")


def _judge_binding(node: str, variables: Mapping[str, str]) -> Iterator[Finding]:
    bind = variables.get("SLURM_CPU_BIND_TYPE", "") or variables.get("SLURM_CPU_BIND", "")
    if "map_cpu" in bind or "rank" in bind.split(","):
        why = "srun inherits it: it binds every rank of a later step to the cores of this one"
        yield warning(NAME, node, f"SLURM_CPU_BIND={bind}", why, "unset SLURM_CPU_BIND SLURM_CPU_BIND_TYPE")


def _judge_devices(node: str, variables: Mapping[str, str], plan: Plan) -> Iterator[Finding]:
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is None or plan.gpus == 0:
        return
    listed = [one for one in visible.split(",") if one.strip() not in ("", "-1")]
    if len(listed) < plan.gpus:
        what = f"CUDA_VISIBLE_DEVICES={visible!r} for {plan.gpus} GPUs"
        why = "torch sees only these"
        yield error(NAME, node, what, why, "unset CUDA_VISIBLE_DEVICES, or request more GPUs")


def _judge_proxies(node: str, variables: Mapping[str, str]) -> Iterator[Finding]:
    found = sorted(name for name in variables if name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))
    if found and not (variables.get("NO_PROXY") or variables.get("no_proxy")):
        why = "HTTP and gRPC between nodes goes through the proxy and fails; NO_PROXY is not set"
        yield warning(
            NAME, node, f"{found[0]} applies to all hosts", why, "--set NO_PROXY=localhost,127.0.0.1,.cluster"
        )


def hung(node: str) -> Finding:
    return error(NAME, node, "the environment cannot be read", "", "reboot the node")


CHECK = Check(name=NAME, seconds=5.0, collect=collect, judge=judge, hung=hung)
