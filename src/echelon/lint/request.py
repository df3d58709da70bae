"""What a job asks the scheduler for: nodes, tasks, GPUs. A number that the script does not fix is None."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from echelon.lint.directives import Dialect, Option, last_option
from echelon.record import record


@record
class Request:
    dialect: Dialect | None = None
    options: tuple[Option, ...] = ()
    nodes: int | None = None
    ntasks: int | None = None
    tasks_per_node: int | None = None
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    cpus_per_task: int | None = None
    chunks: tuple[dict[str, str], ...] = ()
    """Of PBS: the resources of each kind of chunk, with its number as `count`."""
    variables: dict[str, int] = field(default_factory=dict)
    """Variables of the scheduler that are numbers and follow from the request."""

    def option(self, *names: str) -> Option | None:
        return last_option(self.options, *names)

    @property
    def is_multi_node(self) -> bool:
        return self.nodes is not None and self.nodes > 1


def request_of(dialect: Dialect | None, options: Sequence[Option]) -> Request:
    if dialect is Dialect.SBATCH:
        return _slurm_request(tuple(options))
    return _pbs_request(tuple(options)) if dialect is Dialect.QSUB else Request()


def _slurm_request(options: tuple[Option, ...]) -> Request:
    nodes, per_node = _read_count(options, "nodes"), _tasks_per_node(options)
    ntasks = _read_count(options, "ntasks")
    if ntasks is None and nodes is not None and per_node is not None:
        ntasks = nodes * per_node
    gpus, kind = slurm_gpus(options, nodes, per_node)
    cpus = _read_count(options, "cpus-per-task")
    variables = {
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), ntasks),
        "SLURM_NTASKS_PER_NODE": _read_count(options, "ntasks-per-node"),
        "SLURM_GPUS_PER_NODE": _read_count(options, "gpus-per-node"),
        "SLURM_GPUS_ON_NODE": gpus,
        "SLURM_CPUS_PER_TASK": cpus,
    }
    return Request(
        dialect=Dialect.SBATCH,
        options=options,
        nodes=nodes,
        ntasks=ntasks,
        tasks_per_node=per_node,
        gpus_per_node=gpus,
        gpu_type=kind,
        cpus_per_task=cpus,
        variables={name: value for name, value in variables.items() if value is not None},
    )


def _tasks_per_node(options: tuple[Option, ...]) -> int | None:
    """With as many tasks as nodes, or one node, it follows. Without any request for tasks it is one."""
    nodes, ntasks = _read_count(options, "nodes"), _read_count(options, "ntasks")
    given = last_option(options, "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket")
    if given is not None:
        return _read_count(options, "ntasks-per-node")
    if nodes is not None and ntasks is not None and nodes in (1, ntasks):
        return ntasks // nodes
    return 1 if nodes is not None and last_option(options, "ntasks") is None else None


def _read_count(options: Sequence[Option], name: str) -> int | None:
    found = last_option(options, name)
    return int(found.value) if found is not None and re.fullmatch(r"\d{1,6}", found.value) else None


def gpus_in(text: str) -> tuple[int | None, str | None]:
    """Number and type from `4`, `a100:4`, `gpu:4`, `gpu:a100:4`, `gpu:a100`. (None, None) if it has no GPUs."""
    items = text.split(",")
    named = [item for item in items if re.search(r"\bgpu\b", item)]
    for item in named or items:
        words = item.replace("/", ":").split(":")
        if words[0] == "gres":
            words = words[1:]
        if words[0] == "gpu":
            words = words[1:] or ["1"]
        elif len(words) > 2 or not (len(words) == 2 or words[0].isdigit()):
            continue
        number = re.sub(r"\(.*", "", words[-1])
        kind = words[0] if len(words) > 1 or not number.isdigit() else None
        return int(number) if number.isdigit() else 1, kind
    return None, None


def slurm_gpus(options: Sequence[Option], nodes: int | None, per_node: int | None) -> tuple[int | None, str | None]:
    """GPUs per node and their type. With several requests that differ, the number is unknown."""
    found: list[tuple[int | None, str | None]] = []
    gres, by_node = last_option(options, "gres"), last_option(options, "gpus-per-node")
    if gres is not None and re.search(r"\bgpu\b", gres.value):
        found.append(gpus_in(gres.value))
    if by_node is not None:
        found.append(gpus_in(by_node.value))
    by_task, total = last_option(options, "gpus-per-task"), last_option(options, "gpus")
    if not found and by_task is not None and total is None:
        number, kind = gpus_in(by_task.value)
        found.append((number * per_node if number is not None and per_node is not None else None, kind))
    if not found and total is not None:
        number, kind = gpus_in(total.value)
        even = number is not None and nodes is not None and number % nodes == 0
        found.append((number // nodes if even and number is not None and nodes else None, kind))
    numbers = {number for number, _ in found}
    return (numbers.pop() if len(numbers) == 1 else None), next((kind for _, kind in found if kind), None)


def _pbs_request(options: tuple[Option, ...]) -> Request:
    """`-l select=2:ncpus=8:ngpus=4`, or the older `-l nodes=2:ppn=8:gpus=4`."""
    select, nodes = last_option(options, "l.select"), last_option(options, "l.nodes")
    given = select or nodes
    if given is None:
        return Request(dialect=Dialect.QSUB, options=options)
    chunks = tuple(_parse_chunk(text) for text in given.value.split("+"))
    gpus, tasks = ("ngpus", "mpiprocs") if select is not None else ("gpus", "ppn")
    return Request(
        dialect=Dialect.QSUB,
        options=options,
        nodes=_sum_of_chunks(chunks, "count"),
        gpus_per_node=_common_value(chunks, gpus),
        tasks_per_node=_common_value(chunks, tasks),
        chunks=chunks if select is not None else (),
    )


def _parse_chunk(text: str) -> dict[str, str]:
    first, *rest = text.split(":")
    chunk = {"count": first} if first.isdigit() else {"count": "1", first.partition("=")[0]: first.partition("=")[2]}
    return {**chunk, **dict(one.partition("=")[::2] for one in rest)}


def _sum_of_chunks(chunks: Sequence[dict[str, str]], key: str) -> int | None:
    values = [chunk.get(key, "") for chunk in chunks]
    return sum(map(int, values)) if all(value.isdigit() for value in values) else None


def _common_value(chunks: Sequence[dict[str, str]], key: str) -> int | None:
    """The value, if all chunks have the same."""
    values = {chunk.get(key, "") for chunk in chunks}
    only = values.pop() if len(values) == 1 else ""
    return int(only) if only.isdigit() else None
