"""A plain job script for Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.command import folded
from echelon.job import Job
from echelon.plain import launcher_name
from echelon.plain.entering import node_function
from echelon.plain.failing import RANK, ending
from echelon.plain.launchers import launch, script_words
from echelon.plain.meeting import head_lines
from echelon.plain.once_more import once_more
from echelon.plain.opening import heading, variables
from echelon.plain.together import STATE_FOLDER
from echelon.run_dir import RunDir
from echelon.schedulers.slurm_script import directive, directives

ONLY_OURS = frozenset({"wait-all-nodes", "no-kill"})
"""A job that must go on without a node wants somebody who sees to it."""


def lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    yield from heading(job, "Submit it: sbatch FILE")
    yield from (directive(name, value) for name, value in asked(job))
    yield from variables(job, "export {name} before sbatch")
    yield "# Ranks meet at the first node, where this script runs, at a port worked out from the job's id."
    yield 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield from head_lines(job, "SLURM_JOB_ID")
    yield 'export JOB_STATE=$PWD/.job-$SLURM_JOB_ID # ranks find "notice" in it when they should stop soon'
    yield from STATE_FOLDER
    yield from RANK
    yield from _node(job, environ)
    yield "export -f note rank node"
    yield "# Before the limit Slurm sends USR1 to this shell alone (B:): torchrun would die of it. Then TERM, to all."
    yield "trap 'touch \"$JOB_STATE/notice\"' USR1"
    yield ending(job, "TERM")
    yield from _start(job)
    yield 'while [ "$(jobs -rp)" ]; do sleep 1; done # a trap waits for a command to end, so none may take long'
    yield 'wait $!; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")'
    yield from once_more(job, "${SLURM_RESTART_COUNT:-0}", 'scontrol requeue "$SLURM_JOB_ID"')


def asked(job: Job) -> Iterator[tuple[str, str | None]]:
    """As in every job script for Slurm, but for what only a supervisor could make something of."""
    alone = replace(job, resources=replace(job.resources, spare_nodes=0))
    for name, value in directives(alone, RunDir(Path(job.cwd))):
        if name == "output":
            yield name, f"{job.name}-%{'j' if job.booking.array is None else 'A_%a'}.out"
        elif name == "ntasks-per-node" and launcher_name(job) == "srun":
            yield name, str(job.resources.procs_per_node)
        elif name == "cpus-per-task":
            yield name, str(cpus_per_task(job))
        elif name not in ONLY_OURS:
            yield name, value


def cpus_per_task(job: Job) -> int:
    tasks = job.resources.procs_per_node if launcher_name(job) == "srun" else 1
    return max(1, (job.resources.cpus or 1) // tasks)


def _node(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    if launcher_name(job) != "srun":
        yield from node_function(job, *launch(job, environ, prefix=("exec",)))
        return
    yield from node_function(
        job,
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS",
        *folded(("rank", *script_words(job))),
    )


def _start(job: Job) -> Iterator[str]:
    """Since 22.05 a step does not know how many CPUs its tasks were promised."""
    cpus = (f"--cpus-per-task={cpus_per_task(job)}",) if job.resources.cpus is not None else ()
    yield from folded(("srun", "--kill-on-bad-exit=1", *cpus, "bash", "-c", 'node "$SLURM_NODEID"'), " &")
