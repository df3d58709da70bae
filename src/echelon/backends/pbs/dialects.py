"""Derives the CPUs and memory per node from the known queues of a PBS site, and checks the request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelon.backends import DerivedValue, Settings
from echelon.backends.pbs.script import RESERVED_OPTIONS
from echelon.errors import ConfigError


def check_native(settings: Settings) -> None:
    for name in settings.get("pbs") or {}:
        if name in RESERVED_OPTIONS:
            raise ConfigError(
                f"{name} is set by echelon itself",
                origin=settings.origin("pbs"),
                hint=RESERVED_OPTIONS[name] or "echelon render shows the options of qsub",
            )
        if name.startswith("chunk.") and settings.get("pbs_dialect") == "totals":
            raise ConfigError(
                f"{name} is a resource of a chunk, and this dialect has no chunks",
                origin=f"{settings.origin('pbs')}; the dialect: {settings.origin('pbs_dialect')}",
                hint=f"--pbs {name.partition('.')[2]}=..., for the job as a whole",
            )


def derived_values(settings: Settings, gpus: int) -> dict[str, DerivedValue]:
    """CPUs and memory in proportion to the requested GPUs, if the site profile lists the queue."""
    queue = settings.get("partition")
    shape = (settings.get("queues") or {}).get(queue)
    if shape is None:
        _require_cpus(settings, queue)
        return {}
    origin = f"queue {queue}: {settings.origin('queues')}"
    nodes = settings.get("nodes") + settings.get("spare_nodes")
    check_gpus(settings, shape, gpus, queue)
    share = 1.0 if nodes > 1 or not shape.get("gpus") else gpus / shape["gpus"]
    found = {}
    if shape.get("cpus") and settings.get("cpus") is None:
        found["cpus"] = DerivedValue(value=int(shape["cpus"] * share), origin=origin)
    if shape.get("mem_gb") and settings.get("mem") is None:
        found["mem"] = DerivedValue(value=f"{int(shape['mem_gb'] * share)}G", origin=origin)
    cpus = settings.get("cpus") or found["cpus"].value if shape.get("cpus") else None
    if cpus is not None:
        check_cpus(settings, shape, gpus, nodes, cpus)
    return found


def _require_cpus(settings: Settings, queue: str | None) -> None:
    """Raises ConfigError if the dialect is totals and the CPUs are unknown: a total would multiply a guess."""
    if settings.get("pbs_dialect") != "totals" or settings.get("cpus") is not None:
        return
    known = ", ".join(sorted(settings.get("queues") or {}))
    raise ConfigError(
        "the number of CPUs per node is unknown",
        origin=f"pbs_dialect = totals: {settings.origin('pbs_dialect')}",
        why=f"queue {queue} is not in the table of queues" if queue else "no queue is given",
        hint="--cpus N (on each node)" + (f", or --partition with one of {known}" if known else ""),
    )


def check_gpus(settings: Settings, shape: Mapping[str, Any], gpus: int, queue: str) -> None:
    most = shape.get("gpus", 0)
    if gpus > most:
        raise ConfigError(
            f"{gpus} GPUs per node requested, but nodes of {queue} have {most}",
            origin=f"{settings.origin('gpus_per_node')}; {settings.origin('queues')}",
            hint=f"-g {most}, and more nodes" if most else "--partition NAME of a queue with GPUs, or --cpu",
        )
    if most and not gpus:
        raise ConfigError(
            f"{queue} is a GPU queue, but no GPUs were requested",
            origin=f"{settings.origin('partition')}; {settings.origin('queues')}",
            hint=f"-g {most}",
        )


def check_cpus(settings: Settings, shape: Mapping[str, Any], gpus: int, nodes: int, cpus: int) -> None:
    """Raises ConfigError for more CPUs than a node has, and for totals that do not divide evenly into nodes."""
    whole, most = shape["cpus"], shape.get("gpus", 0)
    origin = f"{settings.origin('cpus')}; {settings.origin('queues')}"
    if cpus > whole:
        raise ConfigError(
            f"{cpus} CPUs per node requested, but nodes have {whole}", origin=origin, hint=f"--cpus {whole}"
        )
    if settings.get("pbs_dialect") != "totals":
        return
    if nodes > 1 and (cpus != whole or gpus != most):
        each = f"{whole} CPUs" + (f" and {most} GPUs" if most else "")
        raise ConfigError(
            f"{nodes} x {cpus} CPUs and {gpus} GPUs do not fill {nodes} nodes",
            origin=origin,
            why=f"the site distributes {nodes * cpus} CPUs over nodes of {each}, so only whole nodes stay separate",
            hint=f"--cpus {whole}" + (f" -g {most}" if most else ""),
        )
    if most and cpus * most != gpus * whole:
        raise ConfigError(
            f"{cpus} CPUs do not match {gpus} GPUs",
            origin=origin,
            why=f"a node has {whole} CPUs for {most} GPUs, and jobs share it in that proportion",
            hint=f"--cpus {gpus * whole // most}",
        )
