"""`--env pyxis`: Slurm's own srun makes the container, by the --container flags that this plugin of its knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from echelon.environments.entry import Entry
from echelon.environments.mounts import mounts_of
from echelon.job import Job


def entry(job: Job) -> Entry:
    """srun runs node.sh in the container, so whatever stands in it happens there."""
    return Entry(place=f"the image {job.enclosure.image or job.enclosure.container_name}", is_inside=True)


def container_flags(job: Job, run_path: Path, environ: Iterable[str]) -> tuple[str, ...]:
    """For any srun whose tasks belong into the container; none where it is not srun that makes it. Secrets win over
    what the image has set; what else was asked for is in run.json. Pure."""
    if job.environment != "pyxis":
        return ()
    return tuple(srun_flags(job, run_path, [name for name in job.secret_env if name in environ]))


def srun_flags(job: Job, run_path: Path, names: Sequence[str]) -> list[str]:
    """`names` are variables that win over the image's own. Pure."""
    enclosure = job.enclosure
    flags = [
        *([f"--container-image={enclosure.image}"] if enclosure.image else ()),
        *([f"--container-name={enclosure.container_name}"] if enclosure.container_name else ()),
        f"--container-mounts={','.join(_mounts(job, run_path))}",
        f"--container-workdir={job.inner_cwd}",
    ]
    flags += [f"--container-env={','.join(names)}"] if names else []
    flags += ["--container-writable"] if enclosure.writable else []
    flags += ["--container-remap-root"] if enclosure.root else []
    return flags


def _mounts(job: Job, run_path: Path) -> list[str]:
    own = [f"{path}:{path}" for path in (job.cwd, run_path)]
    return own + [mount.spelled() for mount in mounts_of(job)]
