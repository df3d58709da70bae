"""A plain job script for Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.backends.plain import (
    RANK_FUNCTIONS,
    STATE_FOLDER,
    heading_lines,
    launch_lines,
    launcher_name,
    node_function,
    rendezvous_lines,
    rerun_lines,
    script_words,
    signal_trap,
    variable_lines,
)
from echelon.backends.slurm.script import directive, directives, requested_cpus
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.shell import fold_command

SUPERVISOR_OPTIONS = frozenset({"wait-all-nodes", "no-kill"})
"""Options that a plain script leaves out: only a supervisor can continue a job after it has lost a node."""


def script_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    yield from heading_lines(job, "Submit it: sbatch FILE")
    yield from (directive(name, value) for name, value in plain_directives(job))
    yield from variable_lines(job, "export {name} before sbatch")
    yield "# Ranks meet at the first node, where this script runs, at a port computed from the job's id."
    yield 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield from rendezvous_lines(job, "SLURM_JOB_ID")
    yield 'export JOB_STATE=$PWD/.job-$SLURM_JOB_ID # a file "notice" appears here before the time limit'
    yield from STATE_FOLDER
    yield from RANK_FUNCTIONS if launcher_name(job) == "srun" else with_slurm_variables(RANK_FUNCTIONS)
    yield from _node_lines(job, environ)
    yield f"export -f note rank node{'' if launcher_name(job) == 'srun' else ' as_task'}"
    yield "# Before the limit Slurm sends USR1, only to this shell (B:): it would kill torchrun. Then TERM, to all."
    yield "trap 'touch \"$JOB_STATE/notice\"' USR1"
    yield signal_trap(job, "TERM")
    yield from _start_lines(job)
    yield 'while [ "$(jobs -rp)" ]; do sleep 1; done # a trap waits for a command to end, so none may take long'
    yield 'wait $!; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")'
    yield from rerun_lines(job, "${SLURM_RESTART_COUNT:-0}", 'scontrol requeue "$SLURM_JOB_ID"')


def with_slurm_variables(lines: tuple[str, ...]) -> Iterator[str]:
    """The lines of the function `rank`, which sets Slurm's variables as if there were one task per rank."""
    yield "# Slurm starts one task per node: a script that reads SLURM_PROCID would see one rank per node."
    yield "as_task() { export SLURM_PROCID=${RANK:-0} SLURM_LOCALID=${LOCAL_RANK:-0} SLURM_NTASKS=${WORLD_SIZE:-1}"
    yield "  export SLURM_NPROCS=$SLURM_NTASKS SLURM_STEP_NUM_TASKS=$SLURM_NTASKS; }"
    yield from (line.replace("rank() { trap : TERM;", "rank() { trap : TERM; as_task;") for line in lines)


def plain_directives(job: Job) -> Iterator[tuple[str, str | None]]:
    """The options of sbatch, without those that need a supervisor."""
    alone = replace(job, resources=replace(job.resources, spare_nodes=0))
    for name, value in directives(alone, RunDir(Path(job.cwd))):
        if name == "output":
            yield name, f"{job.name}-%{'j' if job.booking.array is None else 'A_%a'}.out"
        elif name == "ntasks-per-node" and launcher_name(job) == "srun":
            yield name, str(job.resources.procs_per_node)
        elif name == "cpus-per-task":
            yield name, str(cpus_per_task(job))
        elif name not in SUPERVISOR_OPTIONS:
            yield name, value


def cpus_per_task(job: Job) -> int:
    tasks = job.resources.procs_per_node if launcher_name(job) == "srun" else 1
    return max(1, (requested_cpus(job) or 1) // tasks)


def _node_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    if launcher_name(job) != "srun":
        yield from node_function(job, *launch_lines(job, environ, prefix=("exec",)))
        return
    yield from node_function(
        job,
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS",
        *fold_command(("rank", *script_words(job))),
    )


def _start_lines(job: Job) -> Iterator[str]:
    """srun of Slurm 22.05 to 23.02 does not inherit --cpus-per-task from the job, so it gets it explicitly."""
    cpus = (f"--cpus-per-task={cpus_per_task(job)}",) if requested_cpus(job) is not None else ()
    yield from fold_command(("srun", "--kill-on-bad-exit=1", *cpus, "bash", "-c", 'node "$SLURM_NODEID"'), " &")
