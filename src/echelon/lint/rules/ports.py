"""Rules about the port at which ranks meet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.directives import Dialect
from echelon.lint.launches import Launch, LaunchOption
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import (
    ENDPOINT,
    FIRST_NODE,
    GOOD_TORCHRUN,
    HEAD,
    JOB_PORT,
    TORCHRUN,
    backend_of,
    is_job,
    is_multi_node,
    port_of_job,
)
from echelon.lint.script import JobScript
from echelon.lint.syntax import Assignment
from echelon.lint.values import is_known, readable, unknown_names

PORT_NAME = re.compile(r"(?i)(master|rdzv|rendezvous|main|head|dist|leader|torch)\w*port\w*")
PORT = re.compile(r"[1-9]\d{3,4}")
PORT_OPTIONS = ("master-port", "main-process-port", "rdzv-endpoint")
HOST_COMMAND = re.compile(r"\$\(.*\b(hostname|scontrol|hostlist)\b")
HOST_VARIABLES = frozenset({"SLURMD_NODENAME", "HOSTNAME", "SLURM_LAUNCH_NODE_IPADDR", "HOST"})


def find_fixed_ports(script: JobScript) -> Iterator[Hit]:
    """At the assignment if there is one, otherwise at the option."""
    if not is_job(script) or has_nodes_alone(script):
        return
    used = {port for launch in script.launches for _, port in _port_options(launch)}
    seen: set[str] = set()
    for one in script.shell.assignments:
        port = one.value.literal if one.value is not None else None
        is_port = PORT_NAME.fullmatch(one.name) or (one.name.upper().endswith("PORT") and port in used)
        if port and PORT.fullmatch(port) and is_port and port not in seen and not one.scope.conditional:
            seen.add(port)
            yield _fixed_variable(script, one, port)
    for launch in script.launches:
        for option, port in _port_options(launch):
            if port not in seen:
                seen.add(port)
                yield _fixed_option(script, launch, option, port)


def _port_options(launch: Launch) -> Iterator[tuple[LaunchOption, str]]:
    """The options with a known port."""
    for name in PORT_OPTIONS:
        option = launch.option(name)
        if option is None or (name == "rdzv-endpoint" and ":" not in option.value):
            continue
        port = option.value.rpartition(":")[2]
        if PORT.fullmatch(port):
            yield option, port


def _fixed_variable(script: JobScript, one: Assignment, port: str) -> Hit:
    keyword = re.match(r"(export|readonly|declare)\s", script.line(one.line))
    return Hit(
        line=one.line,
        sentence=f"{one.name} is always {port}: two jobs on one node get the same port",
        fix=f"{keyword[0] if keyword else ''}{one.name}={port_of_job(script)}",
    )


def _fixed_option(script: JobScript, launch: Launch, option: LaunchOption, port: str) -> Hit:
    host = as_written(script, option).removesuffix(port)
    value = f'"{host}{port_of_job(script)}"' if host else port_of_job(script)
    return Hit(
        line=option.line,
        start=launch.command.line,
        sentence=f"{option.word} has the fixed port {port}: two jobs on one node get the same port",
        fix=f"{option.word}={value}",
    )


def as_written(script: JobScript, option: LaunchOption) -> str:
    """The value of an option as its line has it, with variables that are not expanded."""
    found = re.search(rf"{re.escape(option.word)}[=\s]+([^\s()]+)(\s|$)", script.line(option.line))
    return found[1].strip("\"'\\") if found is not None else readable(option.value)


def has_nodes_alone(script: JobScript) -> bool:
    """Whether no other job can run on the nodes. A site whose chunks name a `system` deals out whole nodes."""
    place = script.request.option("l.place")
    exclusive = script.request.option("exclusive")
    if any("system" in chunk for chunk in script.request.chunks):
        return True
    return (exclusive is not None and exclusive.value != "user") or (place is not None and "excl" in place.value)


def find_endpoints_without_port(script: JobScript) -> Iterator[Hit]:
    if has_nodes_alone(script):
        return
    for launch in script.launches:
        option = launch.option("rdzv-endpoint")
        if option is None or backend_of(launch) != "c10d" or not _is_bare_host(option.value):
            continue
        host = as_written(script, option)
        yield Hit(
            line=option.line,
            start=launch.command.line,
            sentence=f"{option.word}={host} has no port, so torchrun uses its default port 29400",
            fix=f'{option.word}="{host}:{port_of_job(script)}"',
        )


def _is_bare_host(value: str) -> bool:
    """Whether the value is certainly a host without a port. A variable from outside may contain one."""
    if not value or ":" in value:
        return False
    return all(HOST_COMMAND.match(name) or name in HOST_VARIABLES for name in unknown_names(value))


def find_constant_ids(script: JobScript) -> Iterator[Hit]:
    if not is_job(script) or has_nodes_alone(script):
        return
    for launch in script.launches:
        option, endpoint = launch.option("rdzv-id"), launch.option("rdzv-endpoint")
        if option is None or endpoint is None or not is_known(option.value) or not is_multi_node(script, launch):
            continue
        if _is_bare_host(endpoint.value) or PORT.fullmatch(endpoint.value.rpartition(":")[2]):
            job_id = "$PBS_JOBID" if script.dialect is Dialect.QSUB else "$SLURM_JOB_ID"
            yield Hit(
                line=option.line,
                start=launch.command.line,
                sentence=f"{option.word}={option.value} is the same for every job, and so is the port",
                fix=f'{option.word}="{job_id}"',
            )


RULES = (
    Rule(
        id="fixed-port",
        severity=Severity.WARNING,
        check=find_fixed_ports,
        reason="A port that is written into the script is the same for all jobs.",
        practice="Two jobs on one node: the second hangs for minutes without a message, or both join one rendezvous.",
        bad=f'{HEAD}{FIRST_NODE}{TORCHRUN} --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:29500" train.py\n',
        good=GOOD_TORCHRUN,
    ),
    Rule(
        id="endpoint-without-port",
        severity=Severity.WARNING,
        check=find_endpoints_without_port,
        reason="An endpoint without a port means torchrun's default port, 29400.",
        practice="All jobs share this port: two jobs on one node hang, or join one rendezvous.",
        bad=f'{HEAD}{TORCHRUN} --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$(hostname)" train.py\n',
        good=f'{HEAD}{TORCHRUN} --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$(hostname):{JOB_PORT}" train.py\n',
    ),
    Rule(
        id="constant-rdzv-id",
        severity=Severity.WARNING,
        check=find_constant_ids,
        reason="A constant --rdzv-id with a constant port cannot tell two jobs apart.",
        practice="Two jobs that meet on one node become one rendezvous: too many nodes join, and both jobs fail.",
        bad=f'{HEAD}{FIRST_NODE}{TORCHRUN} --rdzv-id=100 --rdzv-endpoint="$MASTER_ADDR:29500" train.py\n',
        good=f"{HEAD}{FIRST_NODE}{TORCHRUN} {ENDPOINT} train.py\n",
    ),
)
