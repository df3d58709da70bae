"""Rules about what runs on which node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from echelon.lint.directives import Dialect
from echelon.lint.launches import SHELLS, Launch
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import (
    FIRST_NODE,
    GOOD_TORCHRUN,
    HEAD,
    JOB_PORT,
    SRUN,
    backend_of,
    expanded_too_early,
    first_line,
    nodes_of,
    runs_program,
)
from echelon.lint.script import JobScript
from echelon.lint.syntax import Assignment
from echelon.lint.values import OUTER, unknown_names

OF_NODE = frozenset({"SLURM_NODEID"})
OF_TASK = frozenset({"SLURM_PROCID", "SLURM_LOCALID"})
RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "GLOBAL_RANK"})
RANK_OPTION = re.compile(r"--?(?:\w+[-_])?rank(?:=(.*))?")
CONTAINER_VARIABLES = frozenset({"NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "NNODES"})


def find_early_node_ranks(script: JobScript) -> Iterator[Hit]:
    for launch in script.launches:
        if launch.uses_srun:
            yield from _early_options(script, launch)
    yield from _early_exports(script)


def _early_options(script: JobScript, launch: Launch) -> Iterator[Hit]:
    names = _rank_names(script)
    is_ignored = backend_of(launch) == "c10d"
    for option in launch.options.values():
        name = expanded_too_early(launch, option.value, names) if RANK_OPTION.fullmatch(option.word) else None
        if name is not None:
            hit = _early_hit(launch, option.word, name, option.line)
            yield _ignored_by_c10d(hit, option.word) if is_ignored else hit
    for word, value, line in _rank_arguments(launch):
        name = expanded_too_early(launch, value, names)
        if name is not None:
            yield _early_hit(launch, word, name, line)


def _early_hit(launch: Launch, word: str, name: str, line: int) -> Hit:
    return Hit(
        line=line,
        start=launch.command.line,
        sentence=f"{word} is 0 on every node: the batch shell expands ${name}",
        fix=f"{SRUN} bash -c '... {word}=\"${name}\" ...'",
    )


def _ignored_by_c10d(hit: Hit, word: str) -> Hit:
    """With the same fix as c10d-ignores-node-rank."""
    practice = "All nodes get rank 0. Only c10d, which ignores this option, still works."
    return replace(hit, severity=Severity.WARNING, practice=practice, fix=f"# remove {word}")


def _rank_names(script: JobScript) -> frozenset[str]:
    """The variables that differ from node to node, or from task to task, in this job."""
    of_node = OF_NODE if script.request.nodes != 1 else frozenset()
    of_task = OF_TASK if script.request.ntasks != 1 else frozenset()
    return of_node | of_task


def _rank_arguments(launch: Launch) -> Iterator[tuple[str, str, int]]:
    """Arguments of the program itself, such as --local_rank."""
    for word, following in zip(launch.arguments, (*launch.arguments[1:], ""), strict=False):
        found = RANK_OPTION.fullmatch(word)
        if found is not None:
            yield word.partition("=")[0], found[1] if "=" in word else following, launch.command.line


def _early_exports(script: JobScript) -> Iterator[Hit]:
    """`export RANK=$SLURM_PROCID` before `srun python`: torchrun would set the variable itself."""
    readers = [one for one in script.launches if one.uses_srun and one.kind == "python" and not one.in_task]
    if not readers or not script.is_batch:
        return
    for one in script.shell.assignments:
        names = [part.text for part in one.value.parts] if one.value is not None else []
        early = _rank_names(script).intersection(names)
        if one.exported and one.name in RANK_VARIABLES and early and one.line < readers[-1].command.line:
            yield Hit(
                line=one.line,
                sentence=f"{one.name} is 0 on every node: the batch shell expands ${min(early)}",
                fix=f"{SRUN} bash -c 'export {one.name}=\"${min(early)}\"; exec python ...'",
            )


def find_first_node_only(script: JobScript) -> Iterator[Hit]:
    if not script.is_batch or any(one.starter is not None and runs_program(one) for one in script.launches):
        return
    for launch in script.launches:
        if launch.kind not in ("torchrun", "legacy", "accelerate") or launch.starter or launch.command.scope.function:
            continue
        if launch.kind == "accelerate" and launch.option("config-file", "use-deepspeed", "deepspeed-config-file"):
            continue  # accelerate can start the other nodes itself, with pdsh
        nodes = script.request.nodes or nodes_of(script, launch)
        if nodes is None or nodes < 2:
            continue
        program = {"legacy": "torch.distributed.launch", "accelerate": "accelerate launch"}.get(
            launch.kind, launch.kind
        )
        yield Hit(
            line=launch.line,
            start=launch.command.line,
            sentence=f"{program} is started on the first of {nodes} nodes only",
            fix=_start_everywhere(script, launch),
        )
        return


def _start_everywhere(script: JobScript, launch: Launch) -> str:
    line = first_line(script, launch)
    if script.dialect is Dialect.QSUB:
        return f"# with --rdzv-backend=c10d, or with another --node-rank on each host\nmpiexec -ppn 1 {line}"
    return f"srun --ntasks-per-node=1 --kill-on-bad-exit=1 {line}"


def find_enroot_variables(script: JobScript) -> Iterator[Hit]:
    """enroot passes no variables of the host; those of a hook, such as SLURM_*, are left alone."""
    for _, command, words in script.commands:
        if words[:2] != ("enroot", "start"):
            continue
        passed = {words[i + 1].partition("=")[0] for i, word in enumerate(words[:-1]) if word in ("-e", "--env")}
        for position, word in enumerate(words[:-2]):
            if word.rpartition("/")[2] not in SHELLS or not re.fullmatch(r"-[a-z]*c", words[position + 1]):
                continue
            used = set(re.findall(r"\$\{?(\w+)", words[position + 2])) & CONTAINER_VARIABLES
            for name in sorted(used - passed):
                yield Hit(
                    line=_line_of(script, command.line, command.end, rf"\${{?{name}\b"),
                    start=command.line,
                    sentence=f"${name} is not set in the container: enroot passes no variables of the host",
                    fix=f"enroot start --env {name} ...",
                )


def _line_of(script: JobScript, first: int, last: int, pattern: str) -> int:
    return next((line for line in range(first, last + 1) if re.search(pattern, script.line(line))), first)


def find_ranks_by_host_name(script: JobScript) -> Iterator[Hit]:
    """A loop that compares the host name with the list of nodes: in the batch shell it always finds the first."""
    if not script.is_batch or not script.request.is_multi_node:
        return
    compares = script.mentions(r"\$\(hostname|`hostname|\$HOSTNAME|SLURMD_NODENAME")
    for one in script.shell.assignments:
        in_loop = one.name == "NODE_RANK" and one.scope.loop and one.scope.function is None
        if in_loop and compares and _is_used_by_srun(script, one):
            yield Hit(
                line=one.line,
                sentence="NODE_RANK is computed from the host name in the batch shell, which runs on the first node",
                fix=f"{SRUN} bash -c '... --node-rank=\"$SLURM_NODEID\" ...'",
            )


def _is_used_by_srun(script: JobScript, one: Assignment) -> bool:
    return any(
        one.name in (name.removeprefix(OUTER) for name in unknown_names(" ".join(launch.words)))
        for launch in script.launches
        if launch.uses_srun and not launch.in_task
    )


def find_node_ranks(script: JobScript) -> Iterator[Hit]:
    yield from find_early_node_ranks(script)
    yield from find_ranks_by_host_name(script)


STATIC = f"torchrun --nnodes=2 --nproc-per-node=4 --master-addr=$MASTER_ADDR --master-port={JOB_PORT}"
RULES = (
    Rule(
        id="node-rank-in-batch-shell",
        severity=Severity.ERROR,
        check=find_node_ranks,
        reason="The batch shell expands the variable before srun starts, and there it is 0.",
        practice="Every node is node 0. The nodes wait for each other, or two ranks have one number, until a timeout.",
        bad=f"{HEAD}{FIRST_NODE}{SRUN} {STATIC} --node-rank=$SLURM_NODEID train.py\n",
        good=f"{HEAD}export {FIRST_NODE}{SRUN} bash -c '{STATIC} --node-rank=$SLURM_NODEID train.py'\n",
    ),
    Rule(
        id="launcher-on-first-node",
        severity=Severity.ERROR,
        check=find_first_node_only,
        reason="The scheduler runs the script on the first node only. It does not start anything on the others.",
        practice="The launcher waits for nodes that never connect, or trains on one node while the others are idle.",
        bad=GOOD_TORCHRUN.replace(f"{SRUN} ", ""),
        good=GOOD_TORCHRUN,
    ),
    Rule(
        id="enroot-variable-not-passed",
        severity=Severity.ERROR,
        check=find_enroot_variables,
        reason="enroot passes no variables of the host into the container.",
        practice="The variable is empty in the container, so torchrun stops or takes the next word as its value.",
        bad="#!/bin/bash\nNODE_RANK=$SLURM_NODEID\nenroot start torch bash -c 'echo rank $NODE_RANK'\n",
        good="#!/bin/bash\nNODE_RANK=$SLURM_NODEID\n"
        "enroot start --env NODE_RANK torch bash -c 'echo rank $NODE_RANK'\n",
    ),
)
