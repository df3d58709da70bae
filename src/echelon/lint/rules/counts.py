"""Rules about numbers that contradict each other: nodes, tasks, processes, GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.launches import Launch
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.request import gpus_in
from echelon.lint.rules._common import (
    FIRST_NODE,
    GOOD_TORCHRUN,
    HEAD,
    JOB_PORT,
    SRUN,
    TORCHRUN,
    nodes_of,
    step_nodes,
    step_tasks_per_node,
)
from echelon.lint.script import JobScript
from echelon.lint.syntax import Part, PartKind, Word
from echelon.lint.values import OUTER, is_known, unknown_names
from echelon.text import plural

PER_NODE = ("ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket", "tres-per-task")
COUNTS = ("nproc-per-node", "nnodes", "num-processes", "num-machines", "num-gpus", "num-nodes")
PER_NODE_LISTS = frozenset({"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"})


def find_more_processes(script: JobScript) -> Iterator[Hit]:
    for launch, tasks, processes, line in (*_launches_with_counts(script), *_task_scripts_with_counts(script)):
        gpus = script.request.gpus_per_node
        if gpus is not None and gpus > 0 and tasks * processes > gpus:
            each = f"{tasks} tasks x {processes} processes" if tasks > 1 else f"{processes} processes"
            yield Hit(
                line=line,
                start=launch.command.line,
                sentence=f"{each} on each node, but {plural(gpus, 'GPU')}",
                fix=_one_task_fix(script, gpus) if tasks > 1 else f"--nproc-per-node={gpus}",
            )


def _one_task_fix(script: JobScript, gpus: int) -> str:
    """With GPUs per task, one task alone would have too few."""
    by_task = script.request.option("gpus-per-task")
    return "#SBATCH --ntasks-per-node=1" + (f"\n#SBATCH --gpus-per-task={gpus}" if by_task is not None else "")


def find_idle_gpus(script: JobScript) -> Iterator[Hit]:
    for launch, tasks, processes, line in _launches_with_counts(script):
        gpus = script.request.gpus_per_node
        if gpus is not None and 1 < tasks * processes < gpus:
            yield Hit(
                line=line,
                start=launch.command.line,
                sentence=f"{tasks * processes} processes on each node, but {gpus} GPUs",
                fix=f"--nproc-per-node={gpus // tasks}",
            )


def _launches_with_counts(script: JobScript) -> Iterator[tuple[Launch, int, int, int]]:
    """Each launch with its tasks per node, processes per task, and line, if all are known."""
    for launch in script.launches:
        option = launch.option("nproc-per-node")
        if launch.kind not in ("torchrun", "legacy") or option is None:
            continue
        if launch.starter is not None and not launch.uses_srun:
            continue
        tasks = step_tasks_per_node(script, launch) if launch.uses_srun else 1
        processes = script.number(option.value)
        if option.value in ("gpu", "auto") and "gpus-per-task" not in launch.starter_options:
            processes = script.request.gpus_per_node if script.request.option("gpus-per-task") is None else None
        if tasks is not None and processes is not None:
            yield launch, tasks, processes, option.line


def _task_scripts_with_counts(script: JobScript) -> Iterator[tuple[Launch, int, int, int]]:
    """The same for a launcher in another script that srun runs: `srun bash task.sh`."""
    for launch in script.launches:
        tasks = step_tasks_per_node(script, launch) if launch.kind == "other" and launch.uses_srun else None
        inner = script.task_script(launch) if tasks is not None else None
        for one in inner.launches if inner is not None else ():
            option = one.option("nproc-per-node")
            is_certain = one.kind in ("torchrun", "legacy") and not one.starter and not one.command.scope.conditional
            processes = script.number(option.value) if option is not None and is_certain else None
            if tasks is not None and processes is not None:
                yield launch, tasks, processes, launch.command.line


def find_nnodes_mismatch(script: JobScript) -> Iterator[Hit]:
    for launch in script.launches:
        option, expected = launch.option("nnodes", "num-machines"), nodes_of(script, launch)
        started = step_nodes(script, launch) if launch.uses_srun else script.request.nodes
        if option is None or expected is None or started is None or expected == started:
            continue
        rank = launch.option("node-rank", "machine-rank")
        by_hand = rank is not None and not is_known(rank.value)  # one job, or one terminal, for each node
        is_alone = launch.starter is None and (expected < started or by_hand)
        if (launch.starter is not None and not launch.uses_srun) or is_alone or launch.command.scope.loop:
            continue
        yield Hit(
            line=option.line,
            start=launch.command.line,
            sentence=f"{option.word} is {expected}, but the job has {plural(started, 'node')}",
            fix=f"{option.word}=$SLURM_NNODES",
        )


def find_uneven_tasks(script: JobScript) -> Iterator[Hit]:
    request = script.request
    tasks = request.option("ntasks")
    if tasks is None or request.nodes is None or request.ntasks is None or request.option(*PER_NODE) is not None:
        return
    uses_gpus = request.option("gpus-per-node", "gpus", "gpus-per-task") or _gres_gpus(script) is not None
    packs = request.option("cpus-per-task") is None  # otherwise a node may have room for exactly its share
    if (
        packs
        and request.ntasks > request.nodes > 1
        and (uses_gpus or any(one.is_distributed for one in script.launches))
    ):
        yield Hit(
            line=tasks.line,
            sentence=f"{request.ntasks} tasks on {request.nodes} nodes may be split unevenly",
            fix=f"#SBATCH --ntasks-per-node={max(1, request.ntasks // request.nodes)}",
        )


def _gres_gpus(script: JobScript) -> int | None:
    gres = script.request.option("gres")
    return gpus_in(gres.value)[0] if gres is not None and re.search(r"\bgpu\b", gres.value) else None


def find_mixed_gpus(script: JobScript) -> Iterator[Hit]:
    request = script.request
    gres, by_node, total = request.option("gres"), request.option("gpus-per-node"), request.option("gpus")
    if gres is not None and by_node is not None and _gres_gpus(script) is not None:
        yield Hit(
            line=max(gres.line, by_node.line),
            sentence=f"GPUs are requested twice: --gres={gres.value} and --gpus-per-node={by_node.value}",
            fix=f"# keep one of them\n#SBATCH --gpus-per-node={by_node.value}",
        )
    yield from _gpus_by_task(script)
    number = gpus_in(total.value)[0] if total is not None else None
    per_node, nodes = request.gpus_per_node, request.nodes
    if total is None or number is None or not (gres or by_node) or per_node is None or nodes is None:
        return
    if number != per_node * nodes:
        yield Hit(
            line=total.line,
            sentence=f"--gpus={total.value} is the sum over all nodes, but {nodes} x {per_node} are requested",
            fix=f"# keep one of them\n#SBATCH --gpus-per-node={per_node}",
        )


def _gpus_by_task(script: JobScript) -> Iterator[Hit]:
    """sbatch compares GPUs per task with GPUs per node, if both are given."""
    request = script.request
    by_task, tasks = request.option("gpus-per-task"), request.tasks_per_node
    per_node = request.gpus_per_node if request.option("gpus-per-node") or _gres_gpus(script) is not None else None
    number = gpus_in(by_task.value)[0] if by_task is not None else None
    if by_task is None or number is None or tasks is None or per_node is None or number * tasks == per_node:
        return
    yield Hit(
        line=by_task.line,
        sentence=f"{plural(tasks, 'task')} x {plural(number, 'GPU')} on each node, but {per_node} are requested",
        fix=f"# keep one of them\n#SBATCH --gpus-per-node={per_node}",
    )


def find_not_numbers(script: JobScript) -> Iterator[Hit]:
    shapes = dict(_not_number_variables(script))
    for launch in script.launches:
        for name in COUNTS:
            option = launch.option(name)
            names = [one.removeprefix(OUTER) for one in unknown_names(option.value)] if option is not None else []
            for one in shapes.keys() & set(names):
                if option is not None:
                    yield _not_a_number(option.line, launch.command.line, one, shapes[one])
    for line, text in _arithmetic(script):
        for one in sorted(shapes.keys() & set(re.findall(r"\w+", text))):
            yield _not_a_number(line, line, one, shapes[one])


def _not_number_variables(script: JobScript) -> Iterator[tuple[str, str]]:
    """The variables that are not numbers in this job, each with an example of its value."""
    request = script.request
    if request.is_multi_node:
        tasks = request.tasks_per_node or 4
        yield from ((name, f"{tasks}(x{request.nodes})") for name in sorted(PER_NODE_LISTS))
    for option_name, variable in (("gpus-per-node", "SLURM_GPUS_PER_NODE"), ("gpus", "SLURM_GPUS")):
        option = request.option(option_name)
        if option is not None and re.fullmatch(r"[A-Za-z]\w*:\d+", option.value):
            yield variable, option.value


def _not_a_number(line: int, start: int, name: str, example: str) -> Hit:
    number = "${%s##*:}" if ":" in example else "${%s%%%%[!0-9]*}"
    return Hit(line=line, start=start, sentence=f"${name} is not a number here: it is {example}", fix=number % name)


def _arithmetic(script: JobScript) -> Iterator[tuple[int, str]]:
    words: list[Word] = [word for _, command, _ in script.commands for word in command.words]
    words += [one.value for one in script.shell.assignments if one.value is not None]
    for word in words:
        yield from ((word.line, part.text) for part in word.parts if _is_plain_arithmetic(part))


def _is_plain_arithmetic(part: Part) -> bool:
    """Not if a value is cut first, as in ${NAME%%(*}."""
    return part.kind is PartKind.ARITHMETIC and not re.search(r"\$\{\w+[^\w}]", part.text)


RULES = (
    Rule(
        id="more-processes-than-gpus",
        severity=Severity.ERROR,
        check=find_more_processes,
        reason="Tasks per node times processes per task is more than the node has GPUs.",
        practice="Ranks fail with an invalid device ordinal, or several share one GPU and hang in NCCL.",
        bad=GOOD_TORCHRUN.replace("--ntasks-per-node=1", "--ntasks-per-node=4"),
        good=GOOD_TORCHRUN,
    ),
    Rule(
        id="idle-gpus",
        severity=Severity.WARNING,
        check=find_idle_gpus,
        reason="Fewer processes are started than GPUs are requested.",
        practice="Some GPUs are idle for the whole job, and are charged.",
        bad=GOOD_TORCHRUN.replace("--nproc-per-node=4", "--nproc-per-node=2"),
        good=GOOD_TORCHRUN,
    ),
    Rule(
        id="nnodes-mismatch",
        severity=Severity.ERROR,
        check=find_nnodes_mismatch,
        reason="The launcher expects another number of nodes than the job has.",
        practice="If it expects more, all nodes wait until the rendezvous times out. If fewer, the others fail.",
        bad=GOOD_TORCHRUN.replace("--nnodes=2", "--nnodes=4"),
        good=GOOD_TORCHRUN.replace("--nnodes=2", "--nnodes=$SLURM_NNODES"),
    ),
    Rule(
        id="ntasks-without-per-node",
        severity=Severity.WARNING,
        check=find_uneven_tasks,
        reason="--ntasks with --nodes fixes the sum, not the number on each node.",
        practice="Slurm fills the first node: 2 nodes and 4 tasks became 3 + 1 on an idle cluster.",
        bad=f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=4\n#SBATCH --gpus-per-task=1\n{SRUN} python train.py\n",
        good="#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-task=1\n"
        f"{SRUN} python train.py\n",
    ),
    Rule(
        id="mixed-gpu-requests",
        severity=Severity.ERROR,
        check=find_mixed_gpus,
        reason="--gres=gpu and --gpus-per-node both request GPUs.",
        practice="Slurm 26.05 refuses the job. Older versions use --gres; SLURM_GPUS_PER_NODE has the other number.",
        bad=f"#!/bin/bash\n#SBATCH --gres=gpu:4\n#SBATCH --gpus-per-node=4\n{SRUN} python train.py\n",
        good=f"#!/bin/bash\n#SBATCH --gpus-per-node=4\n{SRUN} python train.py\n",
    ),
    Rule(
        id="variable-is-not-a-number",
        severity=Severity.ERROR,
        check=find_not_numbers,
        reason="Some variables of Slurm have the form 4(x2) or a100:4.",
        practice="The launcher refuses the value, or bash reports a syntax error and continues with an empty value.",
        bad=f"{HEAD}{FIRST_NODE}{TORCHRUN.replace('=4', '=$SLURM_TASKS_PER_NODE')} "
        f'--rdzv-endpoint="$MASTER_ADDR:{JOB_PORT}" train.py\n',
        good=f'{HEAD}{FIRST_NODE}{TORCHRUN} --rdzv-endpoint="$MASTER_ADDR:{JOB_PORT}" train.py\n',
    ),
)
