"""`--launcher mpirun`: Open MPI's own, one for all nodes; it reaches them as its installation knows how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from echelon.command import Command
from echelon.job import Job
from echelon.launchers import Where

OURS = {
    **dict.fromkeys(("n", "np", "c", "npernode", "N", "map-by", "ppr"), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("host", "H"), "--nodes"),
    **dict.fromkeys(("hostfile", "machinefile", "oversubscribe", "rank-by", "x", "wdir", "wd", "timeout"), ""),
}
BROUGHT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME")
"""What a rank needs from the start and other hosts may lack; the rest of ours it is given when it checks in."""
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CALM = {"OMPI_MCA_orte_abort_on_non_zero_status": "0"}
"""Who stops, and when, is the supervisor's to say, and not the first rank's that leaves."""


def command(job: Job, where: Where, worker: Sequence[str], environ: Mapping[str, str]) -> Command:
    argv = (
        *("mpirun", "-n", str(where.world_size), *_hosts(job, where), "--bind-to", "none"),
        *_options(job.launching.options),
        *_brought(job, environ),
        *worker,
    )
    tidy = {"OMPI_MCA_orte_local_tmpdir_base": where.folder}  # a killed one leaves files behind
    return Command(argv=argv, env={**CALM, **tidy, **(ROOT if where.is_root else {}), **_in_slurm(where, environ)})


def _hosts(job: Job, where: Where) -> tuple[str, ...]:
    """Ranks in blocks, node after node. Rehearsed nodes are one host, which has as much room as is needed."""
    if job.scheduler == "local":
        return ("--host", f"localhost:{where.world_size}", "--oversubscribe")
    places = ",".join(f"{host}:{where.procs_per_node}" for host in where.hosts)
    return ("--host", places, "--map-by", f"ppr:{where.procs_per_node}:node", "--oversubscribe")


def _in_slurm(where: Where, environ: Mapping[str, str]) -> dict[str, str]:
    """Its daemons are a step of their own, beside our agents; room for the ranks is what we say it is."""
    if not environ.get("SLURM_JOB_ID"):
        return {}
    hosts = environ.get("SLURM_JOB_NODELIST", "")
    count = environ.get("SLURM_JOB_NUM_NODES", str(where.nodes))
    return {
        "SLURM_OVERLAP": "1",
        "SLURM_NODELIST": hosts,
        "SLURM_NNODES": count,
        "SLURM_TASKS_PER_NODE": f"{where.procs_per_node}(x{count})",
    }


def _brought(job: Job, environ: Mapping[str, str]) -> Iterable[str]:
    """By name alone: values are nobody's business who can list processes."""
    names = [name for name in environ if name in BROUGHT or name.startswith("ECHELON_")]
    return (word for name in sorted({*names, *job.env, *job.secret_env}) for word in ("-x", name))


def _options(options: Mapping[str, str]) -> Iterable[str]:
    """`mca=btl tcp,self` is `--mca btl tcp,self`: some of its options take two words."""
    for name, value in options.items():
        yield f"--{name}"
        yield from value.split(None, 1) if name.endswith("mca") else filter(None, (value,))
