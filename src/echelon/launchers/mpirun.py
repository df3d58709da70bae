"""`--launcher mpirun`: one Open MPI mpirun for all nodes. How it reaches them depends on its installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from echelon.job import Job
from echelon.launchers import LaunchContext, Launcher
from echelon.shell import Command

RESERVED_OPTIONS = {
    **dict.fromkeys(("n", "np", "c", "npernode", "N", "map-by", "ppr"), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("host", "H"), "--nodes"),
    **dict.fromkeys(("hostfile", "machinefile", "oversubscribe", "rank-by", "x", "wdir", "wd", "timeout"), ""),
}
FORWARDED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME")
"""Variables that a rank needs from its start and that other hosts may lack. A rank gets others when it registers."""
ROOT_ENVIRON = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NO_ABORT_ENVIRON = {"OMPI_MCA_orte_abort_on_non_zero_status": "0"}
"""mpirun must not end all ranks when the first one fails: the supervisor decides when ranks stop."""


def mpirun_command(job: Job, where: LaunchContext, worker: Sequence[str], environ: Mapping[str, str]) -> Command:
    argv = (
        "mpirun",
        "-n",
        str(where.world_size),
        *_host_flags(where),
        "--bind-to",
        "none",
        *_user_flags(job.launching.options),
        *_forwarding_flags(job, environ),
        *worker,
    )
    tidy = {"OMPI_MCA_orte_local_tmpdir_base": where.folder}  # a killed mpirun leaves its files behind
    root = ROOT_ENVIRON if where.is_root else {}
    return Command(
        argv=argv,
        env={**NO_ABORT_ENVIRON, **tidy, **root, **_slurm_environ(where, environ), **_remote_shell_environ(where)},
    )


def _remote_shell_environ(where: LaunchContext) -> dict[str, str]:
    """Variables that make mpirun start its daemons with `remote_shell`. An Open MPI built with support for the
    scheduler ignores them. The daemons stay in the sessions that the scheduler ends. All are started from the first
    host, because only that host has the program."""
    if not where.remote_shell:
        return {}
    return {
        "OMPI_MCA_plm_rsh_agent": where.remote_shell,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
    }


def _host_flags(where: LaunchContext) -> tuple[str, ...]:
    """Assigns ranks to nodes in blocks, in node order. Rehearsed nodes are one host with enough slots for all ranks."""
    if where.rehearses_nodes:
        return ("--host", f"localhost:{where.world_size}", "--oversubscribe")
    places = ",".join(f"{host}:{where.procs_per_node}" for host in where.hosts)
    return ("--host", places, "--map-by", f"ppr:{where.procs_per_node}:node", "--oversubscribe")


def _slurm_environ(where: LaunchContext, environ: Mapping[str, str]) -> dict[str, str]:
    """mpirun's daemons are a separate job step that overlaps with our agents. These variables set the number of
    slots per node to the number of ranks."""
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


def _forwarding_flags(job: Job, environ: Mapping[str, str]) -> Iterable[str]:
    """Options that pass variables by name only: other users can read command lines, and must not see the values."""
    names = [name for name in environ if name in FORWARDED_VARIABLES or name.startswith("ECHELON_")]
    return (word for name in sorted({*names, *job.env, *job.secret_env}) for word in ("-x", name))


def _user_flags(options: Mapping[str, str]) -> Iterable[str]:
    """Some options of mpirun take two words: `mca=btl tcp,self` becomes `--mca btl tcp,self`."""
    for name, value in options.items():
        yield f"--{name}"
        yield from value.split(None, 1) if name.endswith("mca") else filter(None, (value,))


LAUNCHERS = {"mpirun": Launcher(command=mpirun_command, reserved_options=RESERVED_OPTIONS)}
