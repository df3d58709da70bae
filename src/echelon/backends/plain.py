"""`echelon render --plain`: job scripts that need no echelon on the nodes, and the parts that they share. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from echelon.backends import all_backends, backend
from echelon.errors import ConfigError
from echelon.job import Job, ScriptKind
from echelon.launchers import LaunchContext, load_launcher
from echelon.launchers.accelerate import read_configuration
from echelon.placement import parse_ports
from echelon.shell import export_lines, fold_command, fold_exports, quote_words, shell_variable
from echelon.text import plural

LAUNCHERS = ("torchrun", "accelerate", "legacy", "srun")
ENVIRONMENTS = ("bare", "modules", "setup", "venv", "conda")
MISSING_FEATURES = (
    "this script needs no echelon on the nodes and lacks its features: no restarts, no hang detection, no "
    "spare nodes, no verdict, no run directory, and no cleanup after a killed launcher"
)
SHELLCHECK = "# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts run and are expanded on the nodes"


def render(job: Job, environ: Mapping[str, str]) -> str:
    """The script of a job. `environ` is used to find configuration files of launchers. Raises ConfigError if a plain
    script cannot do what the job needs."""
    lines = backend(job.scheduler).plain_script_lines(job, environ)
    if lines is None:
        known = tuple(one.name for one in all_backends() if one.plain_script_lines(job, environ) is not None)
        raise _unsupported_error(f"--plain does not support scheduler {job.scheduler}", known, f"--on {known[0]}")
    _check_supported(job)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def plain_remarks(job: Job) -> Iterator[str]:
    """Messages for the user: what this script lacks compared with an echelon run."""
    yield MISSING_FEATURES
    asked = {
        f"--restarts {job.policies.restarts}": job.policies.restarts,
        f"--spare-nodes {job.resources.spare_nodes}": job.resources.spare_nodes,
        f"--min-nodes {job.resources.min_nodes}": job.resources.min_nodes,
        "--snapshot": job.snapshot,
    }
    left_out = [flag for flag, given in asked.items() if given]
    if left_out:
        yield f"not supported by --plain: {', '.join(left_out)}"


def _check_supported(job: Job) -> None:
    if launcher_name(job) not in LAUNCHERS:
        raise _unsupported_error(f"--plain does not support launcher {job.launcher}", LAUNCHERS, "--launcher torchrun")
    if job.environment not in ENVIRONMENTS:
        raise _unsupported_error(
            f"--plain does not support environment {job.environment}",
            ENVIRONMENTS,
            "--setup LINE for any other, or omit --plain",
        )


def _unsupported_error(what: str, known: tuple[str, ...], hint: str) -> ConfigError:
    return ConfigError(what, origin="--plain", why=f"it supports {', '.join(known)}", hint=hint)


# Parts that the backends share


def heading_lines(job: Job, how: str) -> tuple[str, ...]:
    resources = job.resources
    nodes, ranks = plural(resources.nodes, "node"), plural(resources.procs_per_node, "rank")
    size = f"{nodes} x {ranks}, started by {launcher_name(job)}"
    return "#!/bin/bash", f"# {job.name}: {size}. The nodes need no echelon. {how}", SHELLCHECK


def variable_lines(job: Job, bring: str) -> Iterator[str]:
    """Sets the variables of the job. Secrets are not written: the script only checks that they are set."""
    if env := _plain_variables(job):
        yield from fold_exports(env)
    for name in job.secret_env:
        yield f': "${{{name}:?is a secret, so it is not written here: {bring.format(name=name)}}}"'


def variable_names(job: Job) -> list[str]:
    """Names of the variables that `variable_lines` sets, for backends that do not pass them to the nodes."""
    return sorted(_plain_variables(job))


def _plain_variables(job: Job) -> dict[str, str]:
    env = dict(job.env)
    if job.resources.cpus is not None:
        env.setdefault("OMP_NUM_THREADS", str(max(1, job.resources.cpus // job.resources.procs_per_node)))
    if job.interface is not None:
        env = {"GLOO_SOCKET_IFNAME": job.interface, "NCCL_SOCKET_IFNAME": job.interface, **env}
    return env


RANK_FUNCTIONS = (
    "# Runs one rank, and waits for it after a TERM. Launchers exit with 1 for any exit code of a rank, so the code",
    "# of the first failure is recorded here. 75 requests another run: the other ranks may finish their checkpoint.",
    'note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: only the first one is kept',
    'rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }',
)


def signal_trap(job: Job, signals: str, *action: str) -> str:
    """The trap for the signals that end a job. A job that a signal ended is not run again."""
    if not job.policies.requeues:
        return f"trap '{'; '.join(action) or ':'}' {signals}"
    return f"ended= && trap '{'; '.join(('ended=yes', *action))}' {signals}"


RERUN_SCRIPT = '{ rm -rf "$JOB_STATE"; TRIES=$((${TRIES:-0} + 1)) exec "$BASH" "$0"; }'
"""Restarts the script from within, for backends without a scheduler."""


def rerun_lines(job: Job, count: str, action: str) -> Iterator[str]:
    """`count` is a shell expression: the number of reruns so far. `action` runs the script again."""
    if job.policies.requeues:
        yield "# Run again after 75, or after a failure that followed the notice, up to a limit; not if it was ended."
        yield '[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"'
        yield f'[ -n "$ended" ] || [ "{count}" -ge {job.policies.requeues} ] || {action}'
    yield 'exit "$code"'


DEFAULT_PORTS = "20000-29999"
"""Below the ephemeral ports of Linux."""
FREE_PORT_LINE = (
    'while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # in use: try the next'
)


def port_lines(job: Job, seed: str) -> Iterator[str]:
    """Sets the port of the job, computed from `seed`."""
    first, last = _port_range(job)
    yield f"export MASTER_PORT=$(({first} + {seed} % {last - first + 1})) # two jobs on one port would join each other"


def _port_range(job: Job) -> tuple[int, int]:
    ports = parse_ports(job.ports or DEFAULT_PORTS)
    return ports[0], ports[-1]


def rendezvous_lines(job: Job, seed: str) -> Iterator[str]:
    """Sets address and port in a script that runs on the first node. The shell variable `first` is that node's name."""
    if job.interface is None:
        yield "MASTER_ADDR=$(getent ahostsv4 \"$first\" | awk '$1 !~ /^127\\./ { print $1; exit }')"
    else:
        shown = quote_words("ip", "-4", "-o", "addr", "show", "dev", job.interface)
        yield f"MASTER_ADDR=$({shown} | awk '{{ split($4, part, \"/\"); print part[1]; exit }}')"
    yield "export MASTER_ADDR=${MASTER_ADDR:-$first} # the name, if no address was found"
    yield from port_lines(job, seed)
    yield FREE_PORT_LINE


STATE_FOLDER = ('rm -rf "$JOB_STATE" && mkdir -m 700 "$JOB_STATE" && trap \'rm -rf "$JOB_STATE"\' EXIT || exit',)
TEMPORARY_STATE = ("JOB_STATE=$(mktemp -d) && trap 'rm -rf \"$JOB_STATE\"' EXIT || exit",)
START_FUNCTION = (
    "# If a node fails, or cannot start its ranks, the other nodes are stopped.",
    'start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }',
)


def wait_lines(job: Job, *, until_the_limit: bool) -> Iterator[str]:
    """Waits for all nodes. Gives the notice and ends the nodes at the time limit."""
    yield 'while [ "$(jobs -rp)" ]; do sleep 1 # not longer: a trap runs only after the command has ended'
    limit = job.resources.time_limit
    if limit is not None:
        yield f'  [ $SECONDS -lt {_seconds_before_the_end(job, limit)} ] || touch "$JOB_STATE/notice" # stop soon'
    if limit is not None and until_the_limit:
        yield f'  [ $SECONDS -lt {int(limit.total_seconds())} ] || {{ note 124; touch "$JOB_STATE/stop"; }}'
    yield "done"
    yield 'code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)'


def launch_and_watch_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    """Starts the launcher of a node and stops it if another node fails. torchrun ends its ranks if one fails."""
    yield from launch_lines(job, environ, ending=" &")
    yield 'until [ -e "$JOB_STATE/stop" ] || ! kill -0 $! 2>/dev/null; do sleep 1; done'
    yield '[ ! -e "$JOB_STATE/stop" ] || { sleep 5 && kill -TERM $!; } 2>/dev/null # it may end by itself first'
    yield "wait $!"


def _seconds_before_the_end(job: Job, limit: timedelta) -> int:
    return max(0, math.floor((limit - job.policies.notice).total_seconds()))


RANK_COMMAND = ("bash", "-c", 'rank "$@"', "rank")


def launch_lines(
    job: Job, environ: Mapping[str, str], *, ending: str = "", prefix: Sequence[str] = ()
) -> tuple[str, ...]:
    """Lines that start the launcher of one node. They are part of a shell function whose first argument is the node's
    number."""
    name = launcher_name(job)
    command = load_launcher(name).command(
        job, _launch_context(job, name, environ), (*RANK_COMMAND, *script_words(job)), {}
    )
    return (*export_lines(command.env), *fold_command((*prefix, *command.argv), ending))


def _launch_context(job: Job, name: str, environ: Mapping[str, str]) -> LaunchContext:
    port = shell_variable("MASTER_PORT")
    return LaunchContext(
        node_rank=shell_variable("1"),
        is_first=shell_variable("is_host"),
        nodes=job.resources.nodes,
        procs_per_node=job.resources.procs_per_node,
        main_address=shell_variable("MASTER_ADDR"),
        main_port=port,
        own_address=shell_variable("own"),
        launcher_port=port,
        hosts=(),
        folder=shell_variable("JOB_STATE"),
        config=read_configuration(job, environ) if name == "accelerate" else "",
    )


def script_words(job: Job) -> tuple[str, ...]:
    script = job.script
    if script.kind is ScriptKind.COMMAND:
        return (script.target, *script.args)
    module = ("-m",) if script.kind is ScriptKind.MODULE else ()
    return (job.python, "-u", *module, script.target, *script.args)


OWN_ADDRESS = """own=$(ip -o route get "$MASTER_ADDR" | sed 's/.* src \\([^ ]*\\).*/\\1/')"""
"""The address at which other nodes reach this one. Its host name may resolve to loopback, or not at all."""
CONDA_HOOK = 'eval "$("${CONDA_EXE:-conda}" shell.bash hook)"'
"""What `conda init` adds to a user's shell startup files. Nodes do not read those files."""


def enter_lines(job: Job, folder: str | None) -> Iterator[str]:
    """Lines that enter the environment. `folder` is where the ranks start; None if the node is already there."""
    enclosure = job.enclosure
    modules = [quote_words("module", "load", *enclosure.modules)] if enclosure.modules else []
    venv = [quote_words(".", f"{enclosure.venv.rstrip('/')}/bin/activate")] if enclosure.venv is not None else []
    conda = [CONDA_HOOK, quote_words("conda", "activate", enclosure.conda)] if enclosure.conda is not None else []
    there = [quote_words("cd", folder)] if folder is not None else []
    if modules:
        yield "type module >/dev/null 2>&1 || . /etc/profile # a non-login shell may lack it"
    if enclosure.setup:
        yield from _all_or_exit(modules)
        yield from enclosure.setup
        modules = []
    yield from _all_or_exit([*modules, *venv, *conda, *there])


def _all_or_exit(commands: Sequence[str]) -> Iterator[str]:
    if commands:
        yield f"{' && '.join(commands)} || exit"


def node_function(job: Job, *body: str, folder: str | None = None) -> Iterator[str]:
    """The shell function `node NUMBER`, which every node runs. The arguments of its ranks are expanded on the node."""
    yield "# What each node runs, given its number. Values that differ between nodes are expanded there, not here."
    yield "node() {"
    yield from (f"  {line}" for line in enter_lines(job, folder))
    if job.launching.rdzv == "c10d" and launcher_name(job) == "torchrun":
        yield f"  is_host=$((! $1)) {OWN_ADDRESS} # torchrun would compare host names"
    yield from (f"  {line}" for line in body)
    yield "}"


def launcher_name(job: Job) -> str:
    """The launcher of the script. torchrun replaces the agents, which a plain script does not have."""
    return "torchrun" if job.launcher == "ranks" else job.launcher
