"""The flags of echelon for what a script requests from Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from echelon.config.parse import format_duration
from echelon.lint.directives import Option
from echelon.lint.launches import Launch
from echelon.lint.migrate.typed import Words
from echelon.lint.model import names
from echelon.lint.request import Request, slurm_gpus
from echelon.lint.script import JobScript

SAME_FLAGS = {
    "partition": "-p",
    "account": "-A",
    "qos": "--qos",
    "constraint": "--constraint",
    "reservation": "--reservation",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "array": "--array",
    "dependency": "--dependency",
    "mail-user": "--mail",
    "mail-type": "--mail-type",
    "comment": "--comment",
    "licenses": "--licenses",
}
NATIVE = names(
    "exclusive switches tmp nice hint contiguous mincpus nodefile gres-flags distribution threads-per-core "
    "cores-per-socket sockets-per-node begin deadline clusters wckey core-spec thread-spec bb "
    "priority oversubscribe power profile delay-boot cpu-freq gpu-freq reboot network mcs-label prefer"
)
"""Options that echelon passes to sbatch unchanged."""
HANDLED = names(
    "nodes ntasks ntasks-per-node cpus-per-task cpus-per-gpu gpus gpus-per-node gpus-per-task gres mem mem-per-cpu "
    "mem-per-gpu time job-name signal requeue no-requeue output error open-mode wait-all-nodes gpu-bind no-kill "
    "kill-on-invalid-dep get-user-env verbose quiet parsable ntasks-per-gpu overcommit"
)
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
REQUEUES = 10
"""Requeues of a job that had no limit."""


def add_slurm_request(words: Words, request: Request, *, requeues: bool) -> None:
    _add_size(words, request)
    limit = request.option("time")
    if limit is not None:
        duration = parse_slurm_time(limit.value)
        if duration is not None:
            words.flag("--time", format_duration(duration))
        elif limit.value:
            words.leave_out(f"--time={limit.value}", limit.line)
    for long_name, flag in SAME_FLAGS.items():
        option = request.option(long_name)
        if option is not None and option.value:
            words.flag(flag, _mail_types(request) if long_name == "mail-type" else option.value)
    name = request.option("job-name")
    add_name(words, name.value if name is not None else "")
    _add_life(words, request, requeues=requeues)
    _add_native(words, request)


def _mail_types(request: Request) -> str:
    """sbatch adds up the types of several lines."""
    return ",".join(dict.fromkeys(one.value for one in request.options if one.name == "mail-type" and one.value))


def add_name(words: Words, name: str) -> None:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]
    if plain and NAME.fullmatch(plain):
        words.flag("--name", plain)


def step_request(script: JobScript, launch: Launch) -> Request:
    """The request with what srun or mpiexec adds: nodes, tasks, GPUs and CPUs of the step that runs the program."""
    request, options = script.request, launch.starter_options
    nodes = _step_nodes(script, options)
    tasks = _tasks_per_node(script, options, nodes)
    given = [Option(name=name, value=value, line=launch.command.line, text="") for name, value in options.items()]
    gpus, kind = slurm_gpus(given, nodes, tasks) if launch.uses_srun else (None, None)
    return replace(
        request,
        nodes=nodes,
        tasks_per_node=tasks,
        gpus_per_node=request.gpus_per_node or _even_gpus(request, nodes) or gpus,
        gpu_type=request.gpu_type or kind,
        cpus_per_task=script.number(options.get("cpus-per-task", "")) or request.cpus_per_task,
    )


def _step_nodes(script: JobScript, options: Mapping[str, str]) -> int | None:
    """Without --nodes, sbatch takes as many as the tasks need."""
    request = script.request
    if "nodes" in options:
        return script.number(options["nodes"])
    tasks = script.number(options["ntasks"]) if "ntasks" in options else request.ntasks
    if tasks == 1 and "ntasks-per-node" not in options:
        return 1
    per_node = script.number(options.get("ntasks-per-node", "")) or request.tasks_per_node
    if request.nodes is None and request.option("nodes") is None and request.ntasks and per_node:
        return -(-request.ntasks // per_node)
    return request.nodes


def _tasks_per_node(script: JobScript, options: Mapping[str, str], nodes: int | None) -> int | None:
    if "ntasks-per-node" in options:
        return script.number(options["ntasks-per-node"])
    tasks = script.number(options["ntasks"]) if "ntasks" in options else script.request.ntasks
    if tasks is not None and nodes and tasks % nodes == 0:
        return tasks // nodes
    if "ntasks" in options or script.request.option("ntasks", "ntasks-per-gpu", "ntasks-per-socket"):
        return None
    return script.request.tasks_per_node or 1


def _add_size(words: Words, request: Request) -> None:
    nodes = request.option("nodes")
    if request.nodes is not None and request.nodes > 1:
        words.flag("-N", request.nodes)
    elif nodes is not None and request.nodes is None:
        words.leave_out(f"--nodes={nodes.value}; add -N", nodes.line)
    elif request.nodes is None and request.ntasks is not None and request.ntasks > 1:
        words.leave_out(f"--ntasks={request.ntasks} without --nodes: add -N and --procs-per-node")
    gpus = request.gpus_per_node
    if gpus:
        words.flag("-g", gpus)
    if request.gpu_type and gpus:
        words.flag("--gpu-type", request.gpu_type)
    cpus = _cpus_per_node(request)
    if cpus is not None:
        words.flag("--cpus", cpus)
    _add_memory(words, request, cpus)


def _even_gpus(request: Request, nodes: int | None) -> int | None:
    """GPUs per node if the tasks are split evenly, which echelon does and Slurm need not do."""
    by_task, tasks = request.option("gpus-per-task"), request.ntasks
    if by_task is None or not by_task.value.isdigit() or not nodes or tasks is None or tasks % nodes:
        return None
    return int(by_task.value) * (tasks // nodes)


def _cpus_per_node(request: Request) -> int | None:
    per_gpu = request.option("cpus-per-gpu")
    if request.cpus_per_task is not None:
        return request.cpus_per_task * request.tasks_per_node if request.tasks_per_node is not None else None
    if per_gpu is not None and per_gpu.value.isdigit() and request.gpus_per_node:
        return int(per_gpu.value) * request.gpus_per_node
    return None


def _add_memory(words: Words, request: Request, cpus: int | None) -> None:
    factors = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": request.gpus_per_node}
    for name, factor in factors.items():
        option = request.option(name)
        if option is None:
            continue
        size = scaled_memory(option.value, factor, unit="M") if factor else None
        if size is None:
            words.leave_out(f"--{name}={option.value}", option.line)
        else:
            words.flag("--mem", size)
        return


def scaled_memory(text: str, factor: int, unit: str = "") -> str | None:
    """`16G` times 2 is `32G`. Takes `16GB` and the misspelled `16Go` as well. `unit` is that of a bare number: None
    without one."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?b|o)?", text, re.IGNORECASE)
    if found is None:
        return None
    number, unit = int(found[1]) * factor, found[2].upper() or unit
    return f"{number}{unit}" if unit or not number else None


def parse_slurm_time(text: str) -> timedelta | None:
    """Minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, first, second, third = (int(part) if part is not None else None for part in found.groups())
    if days is not None:
        result = timedelta(days=days, hours=first or 0, minutes=second or 0, seconds=third or 0)
    elif third is not None:
        result = timedelta(hours=first or 0, minutes=second or 0, seconds=third)
    else:
        result = timedelta(minutes=first or 0, seconds=second or 0)
    return result if result > timedelta(0) else None


def _add_life(words: Words, request: Request, *, requeues: bool) -> None:
    signal = request.option("signal")
    lead = re.search(r"@(\d+)$", signal.value) if signal is not None else None
    limit = request.option("time")
    duration = parse_slurm_time(limit.value) if limit is not None else None
    if lead is not None and (duration is None or timedelta(seconds=int(lead[1])) < duration):
        words.flag("--notice", format_duration(timedelta(seconds=int(lead[1]))))
    if requeues or request.option("requeue") is not None:
        words.flag("--requeues", REQUEUES)
        words.leave_out(f"requeueing without a limit: --requeues {REQUEUES} is one")


def _add_native(words: Words, request: Request) -> None:
    for name in dict.fromkeys(option.name for option in request.options):
        option = request.option(name)
        if option is None or name in SAME_FLAGS or name in HANDLED:
            continue
        if name in NATIVE:
            words.flag("--slurm", f"{name}={option.value}" if option.value else name)
        elif name != "export" or option.value not in ("", "ALL", "NONE"):
            words.leave_out(f"--{name}={option.value}" if option.value else f"--{name}", option.line)
    other = _other_gres(request)
    if other:
        words.flag("--slurm", f"gres={other}")


def _other_gres(request: Request) -> str:
    """Generic resources besides GPUs."""
    option = request.option("gres")
    items = option.value.split(",") if option is not None else []
    return ",".join(item for item in items if not re.search(r"\bgpu\b", item))
