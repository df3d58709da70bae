"""What several families of rules need: helpers, and beginnings of the example scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from echelon.lint.directives import Dialect
from echelon.lint.launches import Launch
from echelon.lint.script import JobScript
from echelon.lint.slurm_options import UNKNOWN
from echelon.lint.values import OUTER, unknown_names

SLURM_PORT = "$((10000 + SLURM_JOB_ID % 50000))"
PBS_PORT = "$((10000 + ${PBS_JOBID%%[!0-9]*} % 50000))"
HEAD = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
"""
FIRST_NODE = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
JOB_PORT = "$((10000 + SLURM_JOB_ID % 50000))"
SRUN = "srun --kill-on-bad-exit=1"
TORCHRUN = f"{SRUN} torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d"
ENDPOINT = f'--rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:{JOB_PORT}"'
GOOD_TORCHRUN = f"{HEAD}{FIRST_NODE}{TORCHRUN} {ENDPOINT} train.py\n"
PBS_HEAD = """\
#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4:mpiprocs=1
#PBS -l place=scatter
cd "$PBS_O_WORKDIR" || exit 1
"""


def port_of_job(script: JobScript) -> str:
    """An expression for a port that differs from job to job."""
    return PBS_PORT if script.dialect is Dialect.QSUB else SLURM_PORT


def first_node(script: JobScript) -> str:
    """An expression for the name of the first node."""
    if script.dialect is Dialect.QSUB:
        return '$(head -n 1 "$PBS_NODEFILE")'
    return '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def is_job(script: JobScript) -> bool:
    """Whether a scheduler runs the script: on nodes that other jobs may share."""
    return script.is_batch or script.mentions(r"\bSLURM\w*_\w+|\bPBS_\w+|\bsrun\b")


def backend_of(launch: Launch) -> str:
    option = launch.option("rdzv-backend")
    return option.value if option is not None else "static"


def nodes_of(script: JobScript, launch: Launch) -> int | None:
    """The number of nodes that a launcher expects, by its own option."""
    option = launch.option("nnodes", "num-machines", "num-nodes")
    return script.number(option.value) if option is not None else None


def is_multi_node(script: JobScript, launch: Launch) -> bool:
    """Whether the launch certainly concerns several nodes."""
    nodes = nodes_of(script, launch)
    if nodes is not None:
        return nodes > 1
    return launch.option("nnodes", "num-machines", "num-nodes") is None and script.request.is_multi_node


def step_nodes(script: JobScript, launch: Launch) -> int | None:
    """The nodes on which srun starts the launcher."""
    if UNKNOWN in launch.starter_options:
        return None
    if "nodes" in launch.starter_options:
        return script.number(launch.starter_options["nodes"])
    if {"nodelist", "ntasks", "exclude", "het-group", "pack-group", "relative"} & launch.starter_options.keys():
        tasks = script.number(launch.starter_options.get("ntasks", ""))
        return tasks if tasks == 1 else None
    return script.request.nodes


def step_tasks_per_node(script: JobScript, launch: Launch) -> int | None:
    """The tasks that srun starts on each node."""
    options = launch.starter_options
    if UNKNOWN in options:
        return None
    if "ntasks-per-node" in options:
        return script.number(options["ntasks-per-node"])
    if "ntasks" in options:
        tasks, nodes = script.number(options["ntasks"]), step_nodes_given(script, launch)
        even = tasks is not None and nodes is not None and (nodes == 1 or tasks == nodes)
        return tasks // nodes if even and tasks is not None and nodes else None
    return script.request.tasks_per_node


def step_nodes_given(script: JobScript, launch: Launch) -> int | None:
    nodes = launch.starter_options.get("nodes")
    return script.number(nodes) if nodes is not None else script.request.nodes


def step_tasks(script: JobScript, launch: Launch) -> int | None:
    options = launch.starter_options
    if UNKNOWN in options:
        return None
    if "ntasks" in options:
        return script.number(options["ntasks"])
    nodes, per_node = step_nodes(script, launch), step_tasks_per_node(script, launch)
    if nodes is not None and per_node is not None:
        return nodes * per_node
    return None if {"nodes", "ntasks-per-node", "nodelist"} & options.keys() else script.request.ntasks


def first_line(script: JobScript, launch: Launch) -> str:
    """The first line of the command, with dots for what follows."""
    return re.sub(r"\s*\\$", " ...", script.line(launch.command.line))


def with_srun_option(script: JobScript, launch: Launch, option: str) -> str:
    """The first line of the command with one more option of srun."""
    line = first_line(script, launch)
    corrected = re.sub(r"(?<![\w$/.'\"-])srun\b(?!=)", f"srun {option}", line, count=1)
    return corrected if corrected != line else f"srun {option} ..."


def expanded_too_early(launch: Launch, value: str, names: frozenset[str]) -> str | None:
    """The variable of a task that the shell before srun has expanded."""
    for name in unknown_names(value):
        bare = name.removeprefix(OUTER)
        if bare in names and (name.startswith(OUTER) if launch.in_task else True):
            return bare
    return None


def requeues_itself(words: Sequence[str]) -> bool:
    """Whether the command requeues this job. A number, or a value to fill in, is a job of a person who types it."""
    job = words[2] if len(words) > 2 and tuple(words[:2]) == ("scontrol", "requeue") else ""
    return any(name.removeprefix(OUTER).startswith("SLURM_") for name in unknown_names(job))


def runs_program(launch: Launch) -> bool:
    """Whether it is the job's own work, and not `srun hostname` or `python --version`."""
    if launch.kind == "other":
        target = launch.target[0] if launch.target else ""
        return "/" in target or target.endswith((".sh", ".exe")) or target in ("bash", "sh")
    return bool(launch.target) and launch.target[0] not in ("-c", "-V", "--version", "-")
