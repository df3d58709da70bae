"""`--env pyxis`: srun creates the container, by flags of the pyxis plugin; retries while another job creates it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.environments import Entry
from echelon.environments.containers import RUNTIME_PREFIXES, job_mounts, runtime_variables
from echelon.environments.node_script import NO_SHELL, PYXIS_PREFIX
from echelon.job import Job

if TYPE_CHECKING:
    from echelon.wire.reports import FatalNodeProblem

REMOVAL_SECONDS = 120.0
"""How long pyxis may take to remove a container after its task; it takes 10 s and more for a large image."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 32.0
NAME_IS_TAKEN = f"{PYXIS_PREFIX}    [ERROR] File already exists"
NOT_CREATED = re.compile(r"pyxis: .*(failed to (create|import)|does not exist)")
NOT_STARTED = re.compile(rf"{re.escape(NO_SHELL)}|pyxis: (container start failed|couldn't start container)")
NO_PYTHON = re.compile(r"cannot run \S+ in ")


def entry(job: Job) -> Entry:
    """srun runs the whole of node.sh in the container."""
    return Entry(place=f"the image {job.enclosure.image or job.enclosure.container_name}", is_inside=True)


def container_flags(job: Job, run_path: Path, environ: Iterable[str]) -> tuple[str, ...]:
    """Flags of an srun whose tasks run in the container; empty if srun does not create the container. Secrets and
    variables of `--set` override those of the image, and enroot's hooks get them too. Pure."""
    if job.environment != "pyxis":
        return ()
    secrets = [name for name in job.secret_env if name in environ]
    return tuple(srun_flags(job, run_path, [*secrets, *_container_env_names(job)]))


def runtime_environ(job: Job, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that srun itself needs besides `environ`: pyxis runs enroot and its hooks with them. Pure."""
    if job.environment != "pyxis":
        return {}
    ours = {"ENROOT_LOGIN_SHELL": "no"}  # /etc/profile would overwrite the PATH of the image
    if not job.resources.gpus_per_node:
        ours["NVIDIA_VISIBLE_DEVICES"] = "void"  # enroot's hook fails without nvidia-container-cli otherwise
    defaults = {name: value for name, value in ours.items() if not environ.get(name)}
    return {**defaults, **runtime_variables(job.env)}


def _container_env_names(job: Job) -> list[str]:
    """Names for --container-env: all of `runtime_environ` except the settings of container runtimes."""
    return [name for name in sorted(runtime_environ(job, {})) if not name.startswith(RUNTIME_PREFIXES)]


def is_removed_after_use(job: Job) -> bool:
    """pyxis removes a container without a name after its task has ended. If srun is killed first, it stays."""
    return job.environment == "pyxis" and not job.enclosure.container_name


def srun_flags(job: Job, run_path: Path, names: Sequence[str]) -> list[str]:
    """`names` are variables that override those of the image. Pure."""
    enclosure = job.enclosure
    flags = [
        *([f"--container-image={enclosure.image}"] if enclosure.image else ()),
        *([f"--container-name={enclosure.container_name}"] if enclosure.container_name else ()),
        f"--container-mounts={','.join(_mount_values(job, run_path))}",
        f"--container-workdir={job.inner_cwd}",
    ]
    flags += [f"--container-env={','.join(names)}"] if names else []
    flags += ["--container-writable"] if enclosure.writable else []
    flags += ["--container-remap-root"] if enclosure.root else []
    return flags


def _mount_values(job: Job, run_path: Path) -> list[str]:
    own = [f"{path}:{path}" for path in (job.cwd, run_path)]
    return own + [mount.option_value() for mount in job_mounts(job)]


# Retries for an agent that fails while another job creates the container of the same name


def container_may_be_incomplete(job: Job, trouble: FatalNodeProblem, output: str) -> bool:
    """Whether an agent may have failed because another job was still creating the container. Pure.

    pyxis and enroot do not report this: programs are missing in a container that is half extracted.
    """
    if job.environment != "pyxis" or not job.enclosure.container_name:
        return False
    if NAME_IS_TAKEN in output or NO_PYTHON.search(trouble.why):
        return True
    return bool(NOT_STARTED.search(output)) and not NOT_CREATED.search(output)


def retry_warning(job: Job, host: str, trouble: FatalNodeProblem) -> str:
    first, *_ = trouble.why.splitlines()
    limit = job.policies.join_timeout.total_seconds()
    what = f"{host}: the container {job.enclosure.container_name} cannot be used yet ({first})"
    return f"{what}; another job may be creating it; retrying for up to --join-timeout ({limit:g} s)"


@dataclass
class Retries:
    """Restarts of the agent of one node."""

    job: Job
    give_up_at: float
    count: int = 0

    def next_at(self, now: float, trouble: FatalNodeProblem, output: str) -> float | None:
        """When to start the agent again; None if that is too late or does not help.

        After the first retry any failure leads to another one: the container may still be incomplete.
        """
        at = now + min(FIRST_PAUSE_SECONDS * 2.0**self.count, LONGEST_PAUSE_SECONDS)
        if at >= self.give_up_at or (self.count == 0 and not container_may_be_incomplete(self.job, trouble, output)):
            return None
        self.count += 1
        return at
