"""What plain scripts have in common: variables, the place to meet, the first failure's code, once more or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta

from echelon.command import Command, exporting, quoted, typed
from echelon.job import Job
from echelon.plain import launcher_name
from echelon.plan import parse_ports
from echelon.wording import counted

PORTS = "20000-29999"
"""Below those that Linux gives away by itself."""
FREE_PORT = (
    'while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # taken: the next one'
)
OWN_ADDRESS = """own=$(ip -o route get "$MASTER_ADDR" | sed 's/.* src \\([^ ]*\\).*/\\1/')"""
"""The one that others reach a node at; the name that it goes by may lead to its own loopback, or nowhere."""
AGAIN = '{ rm -rf "$JOB_STATE"; TRIES=$((${TRIES:-0} + 1)) exec "$BASH" "$0"; }'
"""Where no scheduler would start it once more."""
CONDA = 'eval "$("${CONDA_EXE:-conda}" shell.bash hook)"'
"""What `conda init` would have put into the shell files of a person, which nodes do not read."""
SHELLCHECK = "# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes"

RANK = (
    "# What runs each rank, and stays until that has answered a TERM. Launchers exit with 1 whatever their ranks exit",
    "# with, so the first failure is noted here. 75 is a wish to be run again: the others may finish their saving.",
    'note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: whoever comes second finds it taken',
    'rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }',
)


def heading(job: Job, how: str) -> tuple[str, ...]:
    resources = job.resources
    nodes, ranks = counted(resources.nodes, "node"), counted(resources.procs_per_node, "rank")
    size = f"{nodes} x {ranks}, started by {launcher_name(job)}"
    return "#!/bin/bash", f"# {job.name}: {size}. Nothing of echelon is needed there. {how}", SHELLCHECK


def variables(job: Job, bring: str) -> Iterator[str]:
    """Those of the job; secrets are only looked for."""
    if env := _written(job):
        yield from exporting(env)
    for name in job.secret_env:
        yield f': "${{{name}:?is a secret, so it is not written here: {bring.format(name=name)}}}"'


def names(job: Job) -> list[str]:
    """Of all variables that `variables` sets, for nodes that get none of them by themselves."""
    return sorted(_written(job))


def _written(job: Job) -> dict[str, str]:
    env = dict(job.env)
    if job.resources.cpus is not None:
        env.setdefault("OMP_NUM_THREADS", str(max(1, job.resources.cpus // job.resources.procs_per_node)))
    if job.interface is not None:
        env = {"GLOO_SOCKET_IFNAME": job.interface, "NCCL_SOCKET_IFNAME": job.interface, **env}
    return env


def port_lines(job: Job, seed: str) -> Iterator[str]:
    """A port for each job, worked out from `seed`."""
    first, last = _range(job)
    yield f"export MASTER_PORT=$(({first} + {seed} % {last - first + 1})) # two jobs on one port would join each other"


def _range(job: Job) -> tuple[int, int]:
    ports = parse_ports(job.ports or PORTS)
    return ports[0], ports[-1]


def head_lines(job: Job, seed: str) -> Iterator[str]:
    """For a script that runs on the first node; `first` is its name."""
    if job.interface is None:
        yield "MASTER_ADDR=$(getent ahostsv4 \"$first\" | awk '$1 !~ /^127\\./ { print $1; exit }')"
    else:
        shown = " ".join(Command(argv=("ip", "-4", "-o", "addr", "show", "dev", job.interface)).shell_lines())
        yield f"MASTER_ADDR=$({shown} | awk '{{ split($4, part, \"/\"); print part[1]; exit }}')"
    yield "export MASTER_ADDR=${MASTER_ADDR:-$first} # by its name, where that is all there is"
    yield from port_lines(job, seed)
    yield FREE_PORT


def entering(job: Job, folder: str | None) -> Iterator[str]:
    """What a node does before anything else; `folder` is where its ranks start, if it is not there already."""
    enclosure = job.enclosure
    modules = [typed(("module", "load", *enclosure.modules))] if enclosure.modules else []
    venv = [typed((".", f"{enclosure.venv.rstrip('/')}/bin/activate"))] if enclosure.venv is not None else []
    conda = [CONDA, typed(("conda", "activate", enclosure.conda))] if enclosure.conda is not None else []
    there = [typed(("cd", folder))] if folder is not None else []
    if modules:
        yield "type module >/dev/null 2>&1 || . /etc/profile # shells that are no login shells may lack it"
    if enclosure.setup:
        yield from _all_or_exit(modules)
        yield from enclosure.setup
        modules = []
    yield from _all_or_exit([*modules, *venv, *conda, *there])


def _all_or_exit(commands: Sequence[str]) -> Iterator[str]:
    if commands:
        yield f"{' && '.join(commands)} || exit"


def node_function(job: Job, *body: str, folder: str | None = None) -> Iterator[str]:
    """`node NUMBER`: what every node runs. The words of its ranks are expanded there."""
    yield "# What each node runs, given its number. What differs between nodes must be expanded there, not here."
    yield "node() {"
    yield from (f"  {line}" for line in entering(job, folder))
    if job.launching.rdzv == "c10d" and launcher_name(job) == "torchrun":
        yield f"  is_host=$((! $1)) {OWN_ADDRESS} # torchrun would go by host names"
    yield from (f"  {line}" for line in body)
    yield "}"


def seconds_before_the_end(job: Job, limit: timedelta) -> int:
    return max(0, math.floor((limit - job.policies.notice).total_seconds()))


def ending(job: Job, signals: str, *action: str) -> str:
    """What becomes of the signals that end a job. Who ended it does not want it back."""
    if not job.policies.requeues:
        return f"trap '{'; '.join(action) or ':'}' {signals}"
    return f"ended= && trap '{'; '.join(('ended=yes', *action))}' {signals}"


def once_more(job: Job, count: str, action: str) -> Iterator[str]:
    """`count` is the shell's word for how often that has been done."""
    if job.policies.requeues:
        yield "# Once more after 75, or after a failure that followed the notice; not for ever, nor if it was ended."
        yield '[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"'
        yield f'[ -n "$ended" ] || [ "{count}" -ge {job.policies.requeues} ] || {action}'
    yield 'exit "$code"'


def array(words: Sequence[str]) -> str:
    return f"({' '.join(map(quoted, words))})"
