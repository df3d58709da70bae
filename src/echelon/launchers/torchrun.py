"""`--launcher torchrun`: one agent of torch's on each node. It never restarts anything: our supervisor does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.command import Command
from echelon.job import Job
from echelon.launchers import Where, flags

OURS = {
    **dict.fromkeys(("nnodes",), "--nodes"),
    **dict.fromkeys(("nproc-per-node",), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("max-restarts",), "--restarts"),
    **dict.fromkeys(("rdzv-backend",), "--rdzv"),
    **dict.fromkeys(("master-port",), "--ports"),
    **dict.fromkeys(("local-addr",), "--interface"),
    **dict.fromkeys(
        ("node-rank", "master-addr", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone", "log-dir", "no-python",
         "module", "m", "run-path", "redirects", "r", "tee", "t", "use-env"), ""
    ),
}  # fmt: skip


def command(job: Job, where: Where, worker: Sequence[str], environ: Mapping[str, str]) -> Command:  # noqa: ARG001
    meet, env = meeting(job, where)
    return Command(argv=(job.python, "-m", "torch.distributed.run", *meet, *rest(job, where, worker)), env=env)


def meeting(job: Job, where: Where) -> tuple[tuple[str, ...], dict[str, str]]:
    """How its agents find each other. By c10d they agree among themselves, with whoever else reaches the port."""
    if job.launching.rdzv == "static":
        return static(where), {}
    options = (
        f"--nnodes={where.nodes}",
        f"--nproc-per-node={where.procs_per_node}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={where.main_address}:{where.launcher_port}",
        f"--rdzv-id={where.launcher_port}",
        f"--rdzv-conf=is_host={where.is_first}",  # said outright, for torch would match names of hosts
        f"--local-addr={where.own_address}",
    )
    return options, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def static(where: Where) -> tuple[str, ...]:
    return (
        f"--nnodes={where.nodes}",
        f"--node-rank={where.node_rank}",
        f"--nproc-per-node={where.procs_per_node}",
        f"--master-addr={where.main_address}",
        f"--master-port={where.main_port}",
    )


def rest(job: Job, where: Where, worker: Sequence[str]) -> tuple[str, ...]:
    logs = f"--log-dir={where.folder}"  # otherwise a folder in /tmp, which nobody removes
    return ("--max-restarts=0", logs, *flags(job.launching.options), "--no-python", *worker)
