"""`--launcher torchrun` and `--launcher legacy`: one process per node. Neither restarts ranks: our supervisor does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.job import Job
from echelon.launchers import LaunchContext, Launcher, option_flags
from echelon.shell import Command

RESERVED_OPTIONS = {
    **dict.fromkeys(("nnodes",), "--nodes"),
    **dict.fromkeys(("nproc-per-node",), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("max-restarts",), "--restarts"),
    **dict.fromkeys(("rdzv-backend",), "--rdzv"),
    **dict.fromkeys(("master-port",), "--ports"),
    **dict.fromkeys(("local-addr",), "--interface"),
    **dict.fromkeys(
        (
            "node-rank",
            "master-addr",
            "rdzv-endpoint",
            "rdzv-id",
            "rdzv-conf",
            "standalone",
            "log-dir",
            "no-python",
            "module",
            "m",
            "run-path",
            "redirects",
            "r",
            "tee",
            "t",
            "use-env",
        ),
        "",
    ),
}


def torchrun_command(job: Job, where: LaunchContext, worker: Sequence[str], environ: Mapping[str, str]) -> Command:  # noqa: ARG001
    meet, env = rendezvous_options(job, where)
    return Command(
        argv=(job.python, "-m", "torch.distributed.run", *meet, *common_options(job, where, worker)), env=env
    )


def rendezvous_options(job: Job, where: LaunchContext) -> tuple[tuple[str, ...], dict[str, str]]:
    """Rendezvous options of torchrun, and the variables they need. With c10d the agents form the group themselves, and
    any process that can reach the port can join."""
    if job.launching.rdzv == "static":
        return static_options(where), {}
    options = (
        f"--nnodes={where.nodes}",
        f"--nproc-per-node={where.procs_per_node}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={where.main_address}:{where.launcher_port}",
        f"--rdzv-id={where.launcher_port}",
        f"--rdzv-conf=is_host={where.is_first}",  # explicit, because torch would compare host names
        f"--local-addr={where.own_address}",
    )
    return options, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def static_options(where: LaunchContext) -> tuple[str, ...]:
    return (
        f"--nnodes={where.nodes}",
        f"--node-rank={where.node_rank}",
        f"--nproc-per-node={where.procs_per_node}",
        f"--master-addr={where.main_address}",
        f"--master-port={where.main_port}",
    )


def common_options(job: Job, where: LaunchContext, worker: Sequence[str]) -> tuple[str, ...]:
    logs = f"--log-dir={where.folder}"  # the default is a folder in /tmp that is never removed
    return ("--max-restarts=0", logs, *option_flags(job.launching.options), "--no-python", *worker)


def legacy_command(job: Job, where: LaunchContext, worker: Sequence[str], environ: Mapping[str, str]) -> Command:  # noqa: ARG001
    """One `python -m torch.distributed.launch`, for projects that still use it.

    `--use-env` passes the local rank as LOCAL_RANK. Otherwise scripts would have to accept an argument for it.
    """
    options = ("--use-env", *static_options(where), *common_options(job, where, worker))
    return Command(argv=(job.python, "-W", "ignore::FutureWarning", "-m", "torch.distributed.launch", *options))


LAUNCHERS = {
    "torchrun": Launcher(command=torchrun_command, reserved_options=RESERVED_OPTIONS),
    "legacy": Launcher(command=legacy_command, reserved_options=RESERVED_OPTIONS),
}
