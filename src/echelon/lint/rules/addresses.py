"""Rules about the address at which ranks meet, and about the kinds of rendezvous of torchrun."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.launches import Launch, LaunchOption
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import (
    ENDPOINT,
    FIRST_NODE,
    GOOD_TORCHRUN,
    HEAD,
    SRUN,
    TORCHRUN,
    backend_of,
    first_node,
    is_multi_node,
    nodes_of,
    port_of_job,
    step_nodes,
)
from echelon.lint.script import JobScript
from echelon.lint.syntax import Assignment, Command, PartKind

ADDRESS_NAME = re.compile(
    r"(?i)(master|head|rdzv|rdv|main|leader|chief)\w*(addr|ip|host|node)\w*|master|ip|addr|address"
)
"""Names of variables for the address at which ranks meet."""
LOCALHOST = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|::1)(:|$)")
ADDRESS_OPTIONS = ("master-addr", "main-process-ip", "rdzv-endpoint")
SEVERAL = r"\*[\"']? [\"']?\*|read -r?a\w* "
"""Code that looks for several addresses on a line."""
ALL_ADDRESSES = frozenset({"-i", "-I", "--ip-address", "--all-ip-addresses"})
IGNORED_BY_STANDALONE = ("node-rank", "master-addr", "rdzv-endpoint")


def find_standalone(script: JobScript) -> Iterator[Hit]:
    for launch in script.launches:
        option = launch.option("standalone")
        if option is None or nodes_of(script, launch) == 1 or script.request.nodes == 1:
            continue
        if not is_multi_node(script, launch) and not _names_another_node(launch):
            continue
        ignored = ", ".join(launch.options[name].word for name in IGNORED_BY_STANDALONE if name in launch.options)
        yield Hit(
            line=option.line,
            start=launch.command.line,
            sentence="--standalone starts a separate rendezvous on each node"
            + (f" and ignores {ignored}" if ignored else ""),
            fix='# instead of --standalone\n--rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" '
            f'--rdzv-endpoint="$MASTER_ADDR:{port_of_job(script)}"',
        )


def _names_another_node(launch: Launch) -> bool:
    address = launch.option("master-addr", "rdzv-endpoint")
    return launch.option("node-rank") is not None and address is not None and not LOCALHOST.match(address.value)


def find_localhost(script: JobScript) -> Iterator[Hit]:
    across = [launch for launch in script.launches if _runs_on_many_nodes(script, launch)]
    variables = [one for one in script.shell.assignments if across and _is_localhost(script, one)]
    for one in variables:
        yield _localhost_hit(script, f"{one.name}=", one.line, one.line)
    for launch in across if not variables else ():
        for option in _localhost_options(launch):
            port = option.value.partition(":")[1:] if option.value.count(":") == 1 else ()
            yield _localhost_hit(script, f"{option.word}=", option.line, launch.command.line, "".join(port))


def _runs_on_many_nodes(script: JobScript, launch: Launch) -> bool:
    nodes = step_nodes(script, launch) if launch.uses_srun else script.request.nodes
    own = nodes_of(script, launch)
    if launch.starter is None:  # started on the first node only, which is another trap, but meant for several nodes
        return script.is_batch and own is not None and own > 1
    return nodes is not None and nodes > 1 and own != 1


def _is_localhost(script: JobScript, one: Assignment) -> bool:
    literal = one.value.literal if one.value is not None else None
    is_only = [other.name for other in script.shell.assignments].count(one.name) == 1
    return bool(literal and LOCALHOST.match(literal) and one.name == "MASTER_ADDR" and is_only) and (
        not one.scope.conditional
    )


def _localhost_options(launch: Launch) -> Iterator[LaunchOption]:
    for name in ADDRESS_OPTIONS:
        option = launch.option(name)
        if option is not None and LOCALHOST.match(option.value):
            yield option


def _localhost_hit(script: JobScript, left: str, line: int, start: int, port: str = "") -> Hit:
    return Hit(
        line=line,
        start=start,
        sentence=f"{left}localhost makes each node connect to itself",
        fix=f"{left}{first_node(script)}{port}",
    )


def find_hostname_i(script: JobScript) -> Iterator[Hit]:
    if script.mentions(SEVERAL):
        return
    for one, command in _address_commands(script):
        words = [word.literal or "" for word in command.words]
        if "hostname" not in words or command.pipe_to or script.request.nodes == 1:
            continue
        flag = next((word for word in words[words.index("hostname") :] if word in ALL_ADDRESSES), None)
        if flag is not None:
            yield Hit(
                line=one.line,
                sentence=f"`hostname {flag}` can print several addresses, or one that other nodes cannot reach",
                fix=f"{one.name}={first_node(script)}",
            )


def find_etc_hosts(script: JobScript) -> Iterator[Hit]:
    for one, command in _address_commands(script):
        if any(word.literal == "/etc/hosts" for word in command.words):
            yield Hit(
                line=one.line,
                sentence=f"{one.name} comes from /etc/hosts, which may not list the nodes",
                fix=f"{one.name}={first_node(script)}",
            )


def _address_commands(script: JobScript) -> Iterator[tuple[Assignment, Command]]:
    """The commands in $(...) whose output becomes an address."""
    for one in script.shell.assignments:
        parts = one.value.parts if one.value is not None and ADDRESS_NAME.fullmatch(one.name) else ()
        for part in parts:
            if part.kind is PartKind.COMMAND:
                yield from ((one, inner) for inner in part.inner if isinstance(inner, Command))


def find_c10d_without_endpoint(script: JobScript) -> Iterator[Hit]:
    for launch in script.launches:
        option = launch.option("rdzv-backend")
        if launch.kind not in ("torchrun", "legacy") or option is None or option.value != "c10d":
            continue
        if launch.option("rdzv-endpoint", "standalone") or script.mentions("PET_RDZV_ENDPOINT"):
            continue
        if is_multi_node(script, launch):
            yield Hit(
                line=option.line,
                start=launch.command.line,
                sentence="c10d has no --rdzv-endpoint, so every node looks for the others on itself",
                fix=f'{option.word}=c10d --rdzv-endpoint="$MASTER_ADDR:{port_of_job(script)}"',
            )


def find_c10d_node_rank(script: JobScript) -> Iterator[Hit]:
    for launch in script.launches:
        if not launch.is_distributed or backend_of(launch) != "c10d" or nodes_of(script, launch) == 1:
            continue
        names = ("machine-rank",) if launch.kind == "accelerate" else ("node-rank", "master-addr")
        given = [launch.options[name] for name in names if name in launch.options]
        if given:
            words = " and ".join(one.word for one in given)
            yield Hit(
                line=given[0].line,
                start=launch.command.line,
                sentence=f"with the rendezvous c10d, {words} has no effect",
                fix=f"# remove {words}",
            )


RULES = (
    Rule(
        id="standalone-multi-node",
        severity=Severity.ERROR,
        check=find_standalone,
        reason="--standalone is a rendezvous on localhost. It ignores --node-rank and --master-addr.",
        practice="With --nnodes=2 every node waits until the rendezvous times out. Without it, each node trains alone.",
        bad=f"{HEAD}{SRUN} torchrun --standalone --nnodes=2 --nproc-per-node=4 train.py\n",
        good=GOOD_TORCHRUN,
    ),
    Rule(
        id="localhost-address",
        severity=Severity.ERROR,
        check=find_localhost,
        reason="On each node localhost is that node, not the first one.",
        practice="The ranks of the second node wait for a store on their own machine until they time out.",
        bad=f"{HEAD}export MASTER_ADDR=localhost\n{SRUN} python train.py\n",
        good=f"{HEAD}export {FIRST_NODE}{SRUN} python train.py\n",
    ),
    Rule(
        id="hostname-i-address",
        severity=Severity.WARNING,
        check=find_hostname_i,
        reason="`hostname -i` prints what the host name resolves to on the node itself.",
        practice="On Debian this is often 127.0.1.1. With IPv6 or a second network it is several addresses.",
        bad=f"{HEAD}export MASTER_ADDR=$(hostname -i)\n{SRUN} python train.py\n",
        good=f"{HEAD}export {FIRST_NODE}{SRUN} python train.py\n",
    ),
    Rule(
        id="etc-hosts-address",
        severity=Severity.WARNING,
        check=find_etc_hosts,
        reason="/etc/hosts is not a list of the nodes.",
        practice="If names come from DNS, the address is empty. If the file has n1 and n10, grep n1 finds both.",
        bad=f"{HEAD}export MASTER_ADDR=$(grep \"$SLURMD_NODENAME\" /etc/hosts | awk '{{print $1}}')\n"
        f"{SRUN} python train.py\n",
        good=f"{HEAD}export {FIRST_NODE}{SRUN} python train.py\n",
    ),
    Rule(
        id="c10d-without-endpoint",
        severity=Severity.ERROR,
        check=find_c10d_without_endpoint,
        reason="The rendezvous c10d takes its address from --rdzv-endpoint alone.",
        practice="Every node waits for the others on localhost until the rendezvous times out.",
        bad=f'{HEAD}{FIRST_NODE}{TORCHRUN} --master-addr="$MASTER_ADDR" train.py\n',
        good=GOOD_TORCHRUN,
    ),
    Rule(
        id="c10d-ignores-node-rank",
        severity=Severity.WARNING,
        check=find_c10d_node_rank,
        reason="The rendezvous c10d numbers the nodes itself and takes its address from --rdzv-endpoint.",
        practice="The options have no effect. Ranks may not be in the order of the nodes.",
        bad=f"{HEAD}{FIRST_NODE}{TORCHRUN} --node-rank=0 {ENDPOINT} train.py\n",
        good=GOOD_TORCHRUN,
    ),
)
