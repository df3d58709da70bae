"""`echelon render --plain`: job scripts that need no echelon on the nodes, to be read and learned from. Pure."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from echelon.errors import ConfigError
from echelon.job import Job

LAUNCHERS = ("torchrun", "accelerate", "legacy", "srun")
ENVIRONMENTS = ("bare", "modules", "setup", "venv", "conda")
SCHEDULERS = ("slurm", "pbs", "ssh", "local")

LACKING = (
    "this script needs no echelon on the nodes, and has none of its help: no restarts, no hang detection, no "
    "spare nodes, no verdict, no run directory, and nobody ends what a killed launcher leaves behind"
)


def render(job: Job, environ: Mapping[str, str]) -> str:
    """`environ` tells where launchers keep their settings. Raises ConfigError for what a plain script cannot do."""
    _check(job)
    module = importlib.import_module(f"echelon.plain.{job.scheduler}")
    return "\n".join(line.rstrip() for line in module.lines(job, environ)) + "\n"


def remarks(job: Job) -> Iterator[str]:
    """What a person who asks for such a script should know."""
    yield LACKING
    asked = {
        f"--restarts {job.policies.restarts}": job.policies.restarts,
        f"--spare-nodes {job.resources.spare_nodes}": job.resources.spare_nodes,
        f"--min-nodes {job.resources.min_nodes}": job.resources.min_nodes,
        "--snapshot": job.snapshot,
    }
    left_out = [flag for flag, given in asked.items() if given]
    if left_out:
        yield f"asked for, and not in it: {', '.join(left_out)}"


def _check(job: Job) -> None:
    if job.scheduler not in SCHEDULERS:
        raise _refusal(f"there is no plain script for the scheduler {job.scheduler}", SCHEDULERS, "--on slurm")
    if launcher_name(job) not in LAUNCHERS:
        raise _refusal(f"there is no plain script for the launcher {job.launcher}", LAUNCHERS, "--launcher torchrun")
    if job.environment not in ENVIRONMENTS:
        raise _refusal(
            f"there is no plain script for the environment {job.environment}", ENVIRONMENTS,
            "--setup LINE enters any other; or leave --plain out",
        )  # fmt: skip


def launcher_name(job: Job) -> str:
    """Without echelon torchrun does what our own agents would do."""
    return "torchrun" if job.launcher == "ranks" else job.launcher


def _refusal(what: str, known: tuple[str, ...], hint: str) -> ConfigError:
    return ConfigError(what, origin="--plain", why=f"there are some for {', '.join(known)}", hint=hint)
