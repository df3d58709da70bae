"""Rules about the options of srun."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.launches import Launch
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import HEAD, SRUN, runs_program, step_tasks, step_tasks_per_node, with_srun_option
from echelon.lint.script import JobScript
from echelon.lint.slurm_options import UNKNOWN

RENDEZVOUS = r"MASTER_ADDR|RDZV|init_process_group|torch\.distributed|NCCL_|(?i:lightning|\bddp\b|\bfsdp\b)"


def find_no_kill(script: JobScript) -> Iterator[Hit]:
    """Only for ranks that wait for each other: a plain program of several tasks may go on without one."""
    if script.mentions(r"SLURM_KILL_BAD_EXIT"):
        return
    for launch in _own_launches(script):
        waits = launch.is_distributed or script.mentions(RENDEZVOUS) or _has_a_task_per_gpu(script, launch)
        tasks, least = step_tasks(script, launch), _fewest_tasks(script, launch)
        aborts = launch.target[-1:] == ("mpi4py",)  # it ends all ranks itself
        if "kill-on-bad-exit" in launch.starter_options or not waits or least < 2 or aborts:
            continue
        yield Hit(
            line=launch.command.line,
            sentence=f"srun does not stop the other {_others(tasks)} when one fails",
            fix=with_srun_option(script, launch, "--kill-on-bad-exit=1"),
        )
        return


def _has_a_task_per_gpu(script: JobScript, launch: Launch) -> bool:
    gpus = script.request.gpus_per_node
    return launch.kind == "python" and gpus is not None and gpus > 1 and step_tasks_per_node(script, launch) == gpus


def _fewest_tasks(script: JobScript, launch: Launch) -> int:
    """Without a number of nodes there is at least one, with all its tasks. 0 if nothing is known."""
    tasks, given = step_tasks(script, launch), {"nodes", "ntasks", "nodelist"}
    if tasks is not None or given & launch.starter_options.keys() or script.request.option("ntasks"):
        return tasks or 0
    return step_tasks_per_node(script, launch) or 0


def _others(tasks: int | None) -> str:
    return "tasks" if tasks is None else "task" if tasks == 2 else f"{tasks - 1} tasks"


def find_lost_cpus(script: JobScript) -> Iterator[Hit]:
    cpus = script.request.cpus_per_task
    if cpus is None or cpus < 2 or script.mentions(r"SRUN_CPUS_PER_TASK|SLURM_CPU_BIND"):
        return
    for launch in _own_launches(script):
        given = {"cpus-per-task", "cpu-bind", "cpus-per-gpu", "exclusive", "cpu_bind", "hint"}
        if given & launch.starter_options.keys() or "docker" in launch.before:
            continue  # dockerd starts the process, outside of the step and its cores
        yield Hit(
            line=launch.command.line,
            sentence=f"srun of Slurm 22.05 to 23.02 does not inherit --cpus-per-task={cpus}",
            fix=with_srun_option(script, launch, "--cpus-per-task=$SLURM_CPUS_PER_TASK"),
        )
        return


def _own_launches(script: JobScript) -> Iterator[Launch]:
    seen: set[int] = set()
    for launch in script.launches:
        is_certain = launch.uses_srun and UNKNOWN not in launch.starter_options
        if is_certain and runs_program(launch) and launch.index not in seen:
            seen.add(launch.index)
            yield launch


def find_output_of_one_task(script: JobScript) -> Iterator[Hit]:
    for launch in script.launches:
        value = launch.starter_options.get("output", "")
        tasks = step_tasks(script, launch)
        if launch.uses_srun and re.fullmatch(r"\d+", value) and tasks != 1:
            yield Hit(
                line=launch.command.line,
                sentence=f"srun --output={value} keeps the output of task {value} and drops that of all others",
                fix="srun --output=%x-%j-%t.out ...",
            )


RULES = (
    Rule(
        id="srun-without-kill-on-bad-exit",
        severity=Severity.WARNING,
        check=find_no_kill,
        reason="srun waits for all tasks, also after one has failed.",
        practice="The other ranks wait in a collective for 10 to 30 minutes, or until the time limit.",
        bad=f"{HEAD}srun torchrun --nnodes=2 --nproc-per-node=4 train.py\n",
        good=f"{HEAD}{SRUN} torchrun --nnodes=2 --nproc-per-node=4 train.py\n",
    ),
    Rule(
        id="srun-cpus-per-task",
        severity=Severity.WARNING,
        check=find_lost_cpus,
        reason="srun of Slurm 22.05 to 23.02 reads SRUN_CPUS_PER_TASK, which sbatch does not set.",
        practice="On these versions each task is bound to one core, and data loading is several times slower.",
        bad=f"#!/bin/bash\n#SBATCH --cpus-per-task=8\n{SRUN} python train.py\n",
        good=f"#!/bin/bash\n#SBATCH --cpus-per-task=8\n{SRUN} --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py\n",
    ),
    Rule(
        id="srun-output-of-one-task",
        severity=Severity.WARNING,
        check=find_output_of_one_task,
        reason="A number as --output of srun is the number of a task, not a file.",
        practice="Messages and tracebacks of all other tasks are lost.",
        bad=f"{HEAD}{SRUN} --output=0 python train.py\n",
        good=f"{HEAD}{SRUN} --output=%x-%j-%t.out python train.py\n",
    ),
)
