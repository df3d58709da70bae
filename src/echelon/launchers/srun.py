"""`--launcher srun`: one Slurm task per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.job import Job
from echelon.launchers import LaunchContext, Launcher, option_flags
from echelon.shell import Command
from echelon.system.hostlist import parse_tasks_per_node

RESERVED_OPTIONS = {
    **dict.fromkeys(("nodes",), "--nodes"),
    **dict.fromkeys(("ntasks", "ntasks-per-node"), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("cpus-per-task",), "--cpus"),
    **dict.fromkeys(
        (
            "nodelist",
            "distribution",
            "overlap",
            "exclusive",
            "exact",
            "kill-on-bad-exit",
            "no-kill",
            "input",
            "output",
            "error",
            "export",
            "wait",
            "label",
            "unbuffered",
            "multi-prog",
            "jobid",
            "relative",
            "exclude",
        ),
        "",
    ),
}


def srun_command(job: Job, where: LaunchContext, worker: Sequence[str], environ: Mapping[str, str]) -> Command:
    return Command(argv=("srun", *srun_options(job, where, environ), *option_flags(job.launching.options), *worker))


def srun_options(job: Job, where: LaunchContext, environ: Mapping[str, str]) -> tuple[str, ...]:
    return (
        "--overlap",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",
        "--input=none",
        "--export=ALL",
        "--mem=0",
        f"--nodes={where.nodes}",
        f"--nodelist={','.join(where.hosts)}",
        f"--ntasks={where.world_size}",
        f"--ntasks-per-node={where.procs_per_node}",
        "--distribution=block",
        *_cpu_flags(job, where, environ),
        *_gpu_flags(job),
        *where.container,
    )


def _cpu_flags(job: Job, where: LaunchContext, environ: Mapping[str, str]) -> tuple[str, ...]:
    """CPUs are divided evenly and not bound to ranks, as with our agents. If ranks outnumber CPUs, they share CPUs."""
    bound = _default_binding(job, "cpu-bind")
    there = cpus_per_node(job, environ)
    if there is None:
        return bound
    each = there // where.procs_per_node
    return (*bound, f"--cpus-per-task={each}" if each else "--overcommit")


def _default_binding(job: Job, option: str) -> tuple[str, ...]:
    return () if option in job.launching.options else (f"--{option}=none",)


def cpus_per_node(job: Job, environ: Mapping[str, str]) -> int | None:
    """`--cpus`, or else the smallest number of CPUs that the job has on any of its nodes; None if unknown."""
    if job.resources.cpus is not None:
        return job.resources.cpus
    try:
        return min(parse_tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", "")))
    except ValueError:
        return None


def _gpu_flags(job: Job) -> tuple[str, ...]:
    """Every task sees all GPUs of its node, as with torchrun. The script selects one by its local rank."""
    count = job.resources.gpus_per_node
    return (f"--gpus-per-node={count}", *_default_binding(job, "gpu-bind")) if count else ()


LAUNCHERS = {"srun": Launcher(command=srun_command, reserved_options=RESERVED_OPTIONS)}
