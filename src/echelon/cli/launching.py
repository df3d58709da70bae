"""What `render` says of a launcher: the line that starts the ranks, with variables for what is decided on the nodes."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.command import variable
from echelon.environments.pyxis import container_flags
from echelon.job import Job
from echelon.launchers import Scope, Where, launcher_of, scope_of
from echelon.launchers.accelerate import configuration
from echelon.node.inside import inside
from echelon.run_dir import RunDir

HEADINGS = {
    Scope.NODE: "# ---- then the agent of each node starts its ranks by ----",
    Scope.JOB: "# ---- then the agent of the first node starts all ranks by ----",
}
OURS = ("ECHELON_DESKS", "ECHELON_GENERATION", "ECHELON_NODE_DIR")


def launching(job: Job, home: RunDir, environ: Mapping[str, str]) -> str:
    scope = scope_of(job)
    worker = [job.python, "-I", str(home.node_side), "worker", job.launcher]
    worker = inside(job, home.path, worker) if scope is Scope.JOB else worker
    kept = {name: environ[name] for name in ("PATH", "HOME") if name in environ}
    there = {**kept, **dict.fromkeys((*OURS, "PYTHONPATH"), "")}
    command = launcher_of(job.launcher).command(job, _where(job, home, environ), worker, there)
    return "\n".join((HEADINGS[scope], *(f"# {line}" for line in command.shell_lines()))) + "\n"


def _where(job: Job, home: RunDir, environ: Mapping[str, str]) -> Where:
    return Where(
        node_rank=variable("NODE_RANK"), is_first=variable("IS_FIRST"), nodes=job.resources.nodes,
        procs_per_node=job.resources.procs_per_node, main_address=variable("MAIN_ADDRESS"),
        main_port=variable("MAIN_PORT"), own_address=variable("OWN_ADDRESS"), launcher_port=variable("LAUNCHER_PORT"),
        hosts=(variable("HOSTS"),), folder=variable("NODE_DIR"),
        container=container_flags(job, home.path, job.secret_env),
        config=configuration(job, environ) if job.launcher == "accelerate" else "",
    )  # fmt: skip
