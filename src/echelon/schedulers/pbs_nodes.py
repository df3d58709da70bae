"""What one node of a PBS site is asked for: fitted to what its queues are known to have, and checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelon.errors import ConfigError
from echelon.schedulers import Found, Wishes
from echelon.schedulers.pbs_script import OURS


def check_native(wishes: Wishes) -> None:
    for name in wishes.get("pbs") or {}:
        if name in OURS:
            raise ConfigError(
                f"{name} is set by echelon itself", origin=wishes.origin("pbs"),
                hint=OURS[name] or "echelon render shows what qsub is given",
            )  # fmt: skip
        if name.startswith("chunk.") and wishes.get("pbs_dialect") == "totals":
            raise ConfigError(
                f"{name} belongs to a chunk, and this dialect has none",
                origin=f"{wishes.origin('pbs')}; the dialect: {wishes.origin('pbs_dialect')}",
                hint=f"--pbs {name.partition('.')[2]}=..., for the job as a whole",
            )


def found_for(wishes: Wishes, gpus: int) -> dict[str, Found]:
    """The CPUs and the memory that go with what was asked for, where the profile of the site knows the queue."""
    queue = wishes.get("partition")
    shape = (wishes.get("queues") or {}).get(queue)
    if shape is None:
        _must_be_given(wishes, queue)
        return {}
    origin = f"queue {queue}: {wishes.origin('queues')}"
    nodes = wishes.get("nodes") + wishes.get("spare_nodes")
    check_gpus(wishes, shape, gpus, queue)
    share = 1.0 if nodes > 1 or not shape.get("gpus") else gpus / shape["gpus"]
    found = {}
    if shape.get("cpus") and wishes.get("cpus") is None:
        found["cpus"] = Found(value=int(shape["cpus"] * share), origin=origin)
    if shape.get("mem_gb") and wishes.get("mem") is None:
        found["mem"] = Found(value=f"{int(shape['mem_gb'] * share)}G", origin=origin)
    cpus = wishes.get("cpus") or found["cpus"].value if shape.get("cpus") else None
    if cpus is not None:
        check_cpus(wishes, shape, gpus, nodes, cpus)
    return found


def _must_be_given(wishes: Wishes, queue: str | None) -> None:
    """Totals of a guess would be a guess times the nodes."""
    if wishes.get("pbs_dialect") != "totals" or wishes.get("cpus") is not None:
        return
    known = ", ".join(sorted(wishes.get("queues") or {}))
    raise ConfigError(
        "how many CPUs a node is asked for is not known",
        origin=f"pbs_dialect = totals: {wishes.origin('pbs_dialect')}",
        why=f"nothing is known of the queue {queue}" if queue else "no queue was named",
        hint="--cpus N (on each node)" + (f", or --partition with one of {known}" if known else ""),
    )


def check_gpus(wishes: Wishes, shape: Mapping[str, Any], gpus: int, queue: str) -> None:
    most = shape.get("gpus", 0)
    if gpus > most:
        raise ConfigError(
            f"{gpus} GPUs on each node asked for, but nodes of {queue} have {most}",
            origin=f"{wishes.origin('gpus_per_node')}; {wishes.origin('queues')}",
            hint=f"-g {most}, and more nodes" if most else "--partition NAME of a queue with GPUs, or --cpu",
        )
    if most and not gpus:
        raise ConfigError(
            f"{queue} is a queue for GPUs, and none was asked for",
            origin=f"{wishes.origin('partition')}; {wishes.origin('queues')}", hint=f"-g {most}",
        )  # fmt: skip


def check_cpus(wishes: Wishes, shape: Mapping[str, Any], gpus: int, nodes: int, cpus: int) -> None:
    """Totals are dealt out again by the site, node by node: they come out as meant only if they divide."""
    whole, most = shape["cpus"], shape.get("gpus", 0)
    origin = f"{wishes.origin('cpus')}; {wishes.origin('queues')}"
    if cpus > whole:
        raise ConfigError(
            f"{cpus} CPUs on each node asked for, but there are {whole}", origin=origin, hint=f"--cpus {whole}"
        )
    if wishes.get("pbs_dialect") != "totals":
        return
    if nodes > 1 and (cpus != whole or gpus != most):
        each = f"{whole} CPUs" + (f" and {most} GPUs" if most else "")
        raise ConfigError(
            f"{nodes} x {cpus} CPUs and {gpus} GPUs are not {nodes} nodes here", origin=origin,
            why=f"the site deals {nodes * cpus} CPUs out to nodes of {each}, so only whole ones stay apart",
            hint=f"--cpus {whole}" + (f" -g {most}" if most else ""),
        )  # fmt: skip
    if most and cpus * most != gpus * whole:
        raise ConfigError(
            f"{cpus} CPUs do not go with {gpus} GPUs", origin=origin,
            why=f"a node has {whole} CPUs for {most} GPUs, and is shared out in that proportion",
            hint=f"--cpus {gpus * whole // most}",
        )  # fmt: skip
