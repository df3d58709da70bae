"""Rules about PBS only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.directives import Dialect
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import PBS_HEAD, runs_program
from echelon.lint.script import JobScript
from echelon.lint.syntax import Assignment, Command, PartKind

SITE_RESOURCES = frozenset({"system", "host", "vnode", "accelerator", "gpu", "ngpus", "gputype", "model", "Qlist"})
"""Resources of a chunk by which a site deals out whole nodes or GPUs."""
GPU_SIGNS = r"CUDA_VISIBLE_DEVICES|nvidia-smi|--nproc[-_]per[-_]node[= ]gpu|--nv\b|module (load|add) .*cuda"
MOST_GPUS = 2
"""A chunk with more GPUs is likely to be a whole host."""
NODE_COUNT = re.compile(r"(?i)(n|num|number_?of)_?(nodes|hosts)|nnodes|nodes|nhosts")
FOLDER_OPTIONS = ("d", "w", "l.wd", "D")


def find_node_id(script: JobScript) -> Iterator[Hit]:
    for number, line in enumerate(script.lines, script.source.first_line):
        if re.search(r"\$\{?PBS_NODEID\b", line) and not line.lstrip().startswith("#"):
            yield Hit(
                line=number,
                sentence="PBS has no variable PBS_NODEID",
                fix="# in a task of pbsdsh: the job script itself has no number of a node\n"
                + line.strip().replace("PBS_NODEID", "PBS_NODENUM").rstrip(" \\"),
            )
            return


def find_wrong_folder(script: JobScript) -> Iterator[Hit]:
    if not script.is_whole or script.dialect is not Dialect.QSUB or script.request.option(*FOLDER_OPTIONS):
        return
    if any(one.name in ("cd", "pushd") for _, one, _ in script.commands) or script.mentions("PBS_O_WORKDIR"):
        return
    for launch in script.launches:
        target = launch.target[-1] if launch.target else ""
        is_relative = launch.target[:1] != ("-m",) and re.fullmatch(r"(?!path/to)(\./)?[\w-][\w./-]*\.(py|sh)", target)
        if runs_program(launch) and is_relative:
            yield Hit(
                line=launch.command.line,
                sentence=f"PBS starts the script in the home folder, which may not contain {target}",
                fix='cd "$PBS_O_WORKDIR" || exit 1',
            )
            return


def find_missing_gpus(script: JobScript) -> Iterator[Hit]:
    option = script.request.option("l.select")
    if option is None or not script.request.chunks or script.request.option("l.ngpus", "l.gpus") is not None:
        return
    without = [one for one in script.request.chunks if "ncpus" in one and not SITE_RESOURCES & one.keys()]
    trains = any(launch.is_distributed for launch in script.launches)
    if trains and len(without) == len(script.request.chunks) and script.mentions(GPU_SIGNS):
        yield Hit(
            line=option.line,
            sentence="the chunks ask for no GPUs (ngpus)",
            fix=re.sub(r"(select=\d*:?[^,\s+]*)", r"\1:ngpus=4", option.text, count=1),
        )


def find_packed_chunks(script: JobScript) -> Iterator[Hit]:
    option = script.request.option("l.select")
    if option is None or not script.request.is_multi_node or script.request.option("l.place") is not None:
        return
    if "place=" in option.text or any(SITE_RESOURCES - {"ngpus", "gpu"} & one.keys() for one in script.request.chunks):
        return
    gpus = script.request.gpus_per_node
    if any(launch.is_distributed for launch in script.launches) and (gpus is None or gpus <= MOST_GPUS):
        yield Hit(
            line=option.line,
            sentence=f"PBS may put all {script.request.nodes} chunks on one host",
            fix=f"{option.text}\n#PBS -l place=scatter",
        )


def find_repeated_hosts(script: JobScript) -> Iterator[Hit]:
    tasks = script.request.tasks_per_node
    if script.dialect is not Dialect.QSUB or tasks is None or tasks < 2:
        return
    for one in script.shell.assignments:
        if NODE_COUNT.fullmatch(one.name) and _counts_lines(one):
            yield Hit(
                line=one.line,
                sentence=f"$PBS_NODEFILE has {tasks} lines for each host, so {one.name} is {tasks} times too large",
                fix=f'{one.name}=$(sort -u "$PBS_NODEFILE" | wc -l)',
            )


def _counts_lines(one: Assignment) -> bool:
    for part in one.value.parts if one.value is not None else ():
        commands = [inner for inner in part.inner if isinstance(inner, Command)]
        names = [command.name for command in commands]
        unique = {"sort", "uniq"} & set(names) and re.search(r"\buniq\b|sort\s+-\w*u", part.text)
        if part.kind is PartKind.COMMAND and "wc" in names and "PBS_NODEFILE" in part.text and not unique:
            return "awk" not in names or re.search(r"seen|!\w+\[", part.text) is None
    return False


RUN = "mpiexec -ppn 1 python train.py\n"
TORCHRUN = "mpiexec -ppn 1 torchrun --nnodes=2 train.py\n"
RULES = (
    Rule(
        id="pbs-nodeid",
        severity=Severity.ERROR,
        check=find_node_id,
        reason="PBS has no variable PBS_NODEID.",
        practice="The value is empty: torchrun stops with an error, or takes the next word as the rank.",
        bad=f"{PBS_HEAD}pbsdsh -- bash -lc 'torchrun --nnodes=2 --node-rank=$PBS_NODEID train.py'\n",
        good=f"{PBS_HEAD}pbsdsh -- bash -lc 'torchrun --nnodes=2 --node-rank=$PBS_NODENUM train.py'\n",
    ),
    Rule(
        id="pbs-wrong-folder",
        severity=Severity.WARNING,
        check=find_wrong_folder,
        reason="PBS starts a job in the home folder, not where qsub was typed.",
        practice="Python cannot open the file, or runs an older copy of it. Only some sites change the folder.",
        bad="#!/bin/bash\n#PBS -l select=1:ncpus=8:ngpus=4\npython train.py\n",
        good='#!/bin/bash\n#PBS -l select=1:ncpus=8:ngpus=4\ncd "$PBS_O_WORKDIR" || exit 1\npython train.py\n',
    ),
    Rule(
        id="pbs-no-ngpus",
        severity=Severity.WARNING,
        check=find_missing_gpus,
        reason="A chunk of PBS has only the resources that it asks for.",
        practice="The job gets a node without GPUs, or GPUs that other jobs use at the same time.",
        bad=f"{PBS_HEAD.replace(':ngpus=4', '')}nvidia-smi\n{TORCHRUN}",
        good=f"{PBS_HEAD}nvidia-smi\n{TORCHRUN}",
    ),
    Rule(
        id="pbs-chunks-on-one-host",
        severity=Severity.WARNING,
        check=find_packed_chunks,
        reason="select=2 is two chunks, and PBS may place both on one host.",
        practice="The list of hosts has one host, and torchrun waits for a second node.",
        bad=PBS_HEAD.replace("#PBS -l place=scatter\n", "").replace("ngpus=4", "ngpus=1") + TORCHRUN,
        good=PBS_HEAD.replace("ngpus=4", "ngpus=1") + TORCHRUN,
    ),
    Rule(
        id="pbs-repeated-hosts",
        severity=Severity.ERROR,
        check=find_repeated_hosts,
        reason="$PBS_NODEFILE has a line for each MPI process, not for each host.",
        practice="The launcher waits for nodes that the job does not have.",
        bad=f"{PBS_HEAD.replace('mpiprocs=1', 'mpiprocs=4')}NNODES=$(wc -l < $PBS_NODEFILE)\n{RUN}",
        good=f"{PBS_HEAD.replace('mpiprocs=1', 'mpiprocs=4')}NNODES=$(sort -u $PBS_NODEFILE | wc -l)\n{RUN}",
    ),
)
