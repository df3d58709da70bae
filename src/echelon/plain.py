"""`echelon render --plain`: job scripts that need no echelon on the nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from echelon.backends import all_backends, backend
from echelon.backends.plain import launcher_name
from echelon.errors import ConfigError
from echelon.job import Job

LAUNCHERS = ("torchrun", "accelerate", "legacy", "srun")
ENVIRONMENTS = ("bare", "modules", "setup", "venv", "conda")
MISSING_FEATURES = (
    "this script needs no echelon on the nodes and lacks its features: no restarts, no hang detection, no "
    "spare nodes, no verdict, no run directory, and no cleanup after a killed launcher"
)


def render(job: Job, environ: Mapping[str, str]) -> str:
    """The script of a job. `environ` is used to find configuration files of launchers. Raises ConfigError if a plain
    script cannot do what the job needs."""
    lines = backend(job.scheduler).plain_script_lines(job, environ)
    if lines is None:
        known = tuple(one.name for one in all_backends() if one.plain_script_lines(job, environ) is not None)
        raise _unsupported_error(f"--plain does not support scheduler {job.scheduler}", known, f"--on {known[0]}")
    _check_supported(job)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def plain_remarks(job: Job) -> Iterator[str]:
    """Messages for the user: what this script lacks compared with an echelon run."""
    yield MISSING_FEATURES
    asked = {
        f"--restarts {job.policies.restarts}": job.policies.restarts,
        f"--spare-nodes {job.resources.spare_nodes}": job.resources.spare_nodes,
        f"--min-nodes {job.resources.min_nodes}": job.resources.min_nodes,
        "--snapshot": job.snapshot,
    }
    left_out = [flag for flag, given in asked.items() if given]
    if left_out:
        yield f"not supported by --plain: {', '.join(left_out)}"


def _check_supported(job: Job) -> None:
    if launcher_name(job) not in LAUNCHERS:
        raise _unsupported_error(f"--plain does not support launcher {job.launcher}", LAUNCHERS, "--launcher torchrun")
    if job.environment not in ENVIRONMENTS:
        raise _unsupported_error(
            f"--plain does not support environment {job.environment}",
            ENVIRONMENTS,
            "--setup LINE for any other, or omit --plain",
        )


def _unsupported_error(what: str, known: tuple[str, ...], hint: str) -> ConfigError:
    return ConfigError(what, origin="--plain", why=f"it supports {', '.join(known)}", hint=hint)
