"""`--launcher srun`: one task of Slurm's for each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.command import Command
from echelon.job import Job
from echelon.launchers import Where, flags
from echelon.runtime.slurm_step import parse_tasks_per_node

OURS = {
    **dict.fromkeys(("nodes",), "--nodes"),
    **dict.fromkeys(("ntasks", "ntasks-per-node"), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("cpus-per-task",), "--cpus"),
    **dict.fromkeys(
        ("nodelist", "distribution", "overlap", "exclusive", "exact", "kill-on-bad-exit", "no-kill", "input", "output",
         "error", "export", "wait", "label", "unbuffered", "multi-prog", "jobid", "relative", "exclude"), ""
    ),
}  # fmt: skip


def command(job: Job, where: Where, worker: Sequence[str], environ: Mapping[str, str]) -> Command:
    return Command(argv=("srun", *options(job, where, environ), *flags(job.launching.options), *worker))


def options(job: Job, where: Where, environ: Mapping[str, str]) -> tuple[str, ...]:
    return (
        *("--overlap", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--input=none", "--export=ALL", "--mem=0"),
        f"--nodes={where.nodes}",
        f"--nodelist={','.join(where.hosts)}",
        f"--ntasks={where.world_size}",
        f"--ntasks-per-node={where.procs_per_node}",
        "--distribution=block",
        *_cpus(job, where, environ),
        *_gpus(job),
        *where.container,
    )


def _cpus(job: Job, where: Where, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Shared out evenly and bound to nobody, as our agents do it; where there are too few, they are shared."""
    bound = _unless_asked(job, "cpu-bind")
    there = cpus_per_node(job, environ)
    if there is None:
        return bound
    each = there // where.procs_per_node
    return (*bound, f"--cpus-per-task={each}" if each else "--overcommit")


def _unless_asked(job: Job, option: str) -> tuple[str, ...]:
    return () if option in job.launching.options else (f"--{option}=none",)


def cpus_per_node(job: Job, environ: Mapping[str, str]) -> int | None:
    """What was asked for, or else the least that the job has on any of its nodes."""
    if job.resources.cpus is not None:
        return job.resources.cpus
    try:
        return min(parse_tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", "")))
    except ValueError:
        return None


def _gpus(job: Job) -> tuple[str, ...]:
    """Every task sees all of its node's, as under torchrun: the local rank chooses."""
    count = job.resources.gpus_per_node
    return (f"--gpus-per-node={count}", *_unless_asked(job, "gpu-bind")) if count else ()
