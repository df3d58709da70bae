"""The flags of echelon for what a script requests from PBS."""

from __future__ import annotations

import re
from typing import Any

from echelon.config.parse import format_duration
from echelon.config.sources import site_layer
from echelon.lint.migrate.request import add_name, parse_slurm_time, scaled_memory
from echelon.lint.migrate.typed import Words
from echelon.lint.request import Request

LETTERS = {"q": "-p", "P": "-A", "M": "--mail", "J": "--array"}
MAIL = {"a": "FAIL", "b": "BEGIN", "e": "END"}
DROPPED = frozenset("NmlqPMJjoeVSrkvXzICwdDt")
CHUNK_SIZES = frozenset({"count", "ncpus", "ngpus", "mem", "mpiprocs", "ompthreads", "ppn", "gpus"})
JOB_SIZES = frozenset({"l.select", "l.nodes", "l.ncpus", "l.ngpus", "l.mem", "l.walltime", "l.wd", "l.place"})
SITE = "gadi"
"""The site profile whose queues are known."""


def add_pbs_request(words: Words, request: Request) -> None:
    if request.chunks or request.option("l.nodes") is not None:
        _add_chunks(words, request)
    else:
        _add_totals(words, request)
    limit = request.option("l.walltime")
    duration = parse_slurm_time(limit.value) if limit is not None else None
    if duration is not None:
        words.flag("--time", format_duration(duration))
    for letter, flag in LETTERS.items():
        option = request.option(letter)
        if option is not None and option.value:
            words.flag(flag, option.value)
    mail = request.option("m")
    types = ",".join(MAIL[letter] for letter in mail.value if letter in MAIL) if mail is not None else ""
    if types:
        words.flag("--mail-type", types)
    name = request.option("N")
    add_name(words, name.value if name is not None else "")
    _add_rest(words, request)


def _add_chunks(words: Words, request: Request) -> None:
    chunk = request.chunks[0] if len(request.chunks) == 1 else {}
    if request.nodes is not None and request.nodes > 1:
        words.flag("-N", request.nodes)
    if request.gpus_per_node:
        words.flag("-g", request.gpus_per_node)
    cpus = chunk.get("ncpus") or (str(request.tasks_per_node) if not request.chunks and request.tasks_per_node else "")
    if cpus.isdigit():
        words.flag("--cpus", cpus)
    size = scaled_memory(chunk.get("mem", ""), 1)
    if size is not None:
        words.flag("--mem", size)
    if len(request.chunks) > 1:
        words.leave_out("chunks of several kinds")
    for name, value in chunk.items():
        if name not in CHUNK_SIZES:
            words.flag("--pbs", f"chunk.{name}={value}")
    place = request.option("l.place")
    if place is not None and place.value != "scatter":
        words.flag("--pbs", f"place={place.value}")


def _add_totals(words: Words, request: Request) -> None:
    """Sums over all nodes, as on Gadi: the number of nodes follows from what a node of the queue has."""
    queue, cpus, gpus = request.option("q"), request.option("l.ncpus"), request.option("l.ngpus")
    shape = _queue_shape(queue.value) if queue is not None else None
    number = gpus if gpus is not None else cpus
    whole = shape.get("gpus" if gpus is not None else "cpus") if shape is not None else None
    if shape is None or number is None or not number.value.isdigit() or not whole:
        for option in (cpus, gpus):
            if option is not None:
                words.leave_out(f"{option.name[2:]}={option.value}; add -N, -g and --cpus", option.line)
        return
    total = int(number.value)
    nodes = max(1, -(-total // whole))
    words.flag("--site", SITE)
    if nodes > 1:
        words.flag("-N", nodes)
    if gpus is not None:
        words.flag("-g", total // nodes)
    memory = request.option("l.mem")
    size = re.fullmatch(r"(\d+)([KMGT]?)B?", memory.value, re.IGNORECASE) if memory is not None else None
    if size is not None and int(size[1]) >= nodes:
        words.flag("--mem", f"{int(size[1]) // nodes}{size[2].upper()}")


def _queue_shape(queue: str) -> dict[str, int] | None:
    queues: dict[str, Any] = site_layer(SITE, "lint")["queues"].value
    return queues.get(queue)


def _add_rest(words: Words, request: Request) -> None:
    for option in request.options:
        if option.name.startswith("l.") and option.name not in JOB_SIZES:
            name = option.name[2:]
            words.flag("--pbs", f"{name}={option.value}" if option.value else name)
        elif option.name == "W":
            name, _, value = option.value.partition("=")
            if name == "depend":
                words.flag("--dependency", value)
            else:
                words.flag("--pbs", f"W.{name}={value}")
        elif len(option.name) == 1 and option.name not in DROPPED:
            words.flag("--pbs", f"{option.name}={option.value}" if option.value else option.name)
