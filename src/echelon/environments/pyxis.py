"""`--env pyxis`: srun creates the container, by the --container flags that the pyxis plugin adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from echelon.environments import Entry
from echelon.environments.containers import RUNTIME_PREFIXES, job_mounts, runtime_variables
from echelon.job import Job

REMOVAL_SECONDS = 120.0
"""How long pyxis may take to remove a container after its task; it takes 10 s and more for a large image."""


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
