"""`--env apptainer` and `--env singularity`: the image is a file, a folder or an address that apptainer can fetch."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.environments import Entry, refuse_command
from echelon.environments.containers import (
    is_image_address,
    job_mounts,
    mount_lines,
    runtime_variables,
    source_check_lines,
)
from echelon.job import Job
from echelon.shell import export_lines, quote_words, shell_array, shell_variable

TOOL = shell_variable("tool")


def entry(job: Job) -> Entry:
    enclosure = job.enclosure
    image = enclosure.image or ""
    options = (*("--writable-tmpfs",) * enclosure.writable, *("--fakeroot",) * enclosure.root)
    names = ("singularity", "apptainer") if job.environment == "singularity" else ("apptainer", "singularity")
    nothing = refuse_command(f"this node has neither {names[0]} nor {names[1]}", "--modules NAME that provides one")
    lines = (
        "",
        "# The container",
        f"tool=$(type -P {names[0]} || type -P {names[1]}) || {nothing}",
        *source_check_lines(
            job_mounts(job), refuse_command(f"this node has no {shell_variable('source')} to mount", "another --mount")
        ),
        *(() if is_image_address(image, job.environment) else _image_check_lines(image)),
        *mount_lines(job, "--bind", ":ro"),
        *export_lines(runtime_variables(job.env)),
        "unset PYTHONHOME # the container inherits all other exported variables",
        "gpus=()",
        *(_gpu_lines() if job.resources.gpus_per_node else ()),
    )
    where = ("--pwd", job.inner_cwd)
    wrapper = (TOOL, "exec", *options, shell_array("gpus"), shell_array("mounts"), *where, image)
    return Entry(place=f"the image {image}", lines=lines, wrapper=wrapper)


def _image_check_lines(image: str) -> Iterator[str]:
    yield f"[ -r {quote_words(image)} ] || {refuse_command(f'this node has no image {image}', 'another --image')}"


def _gpu_lines() -> Iterator[str]:
    yield "if [ -e /dev/kfd ] && ! [ -e /dev/nvidiactl ]; then gpus=(--rocm); else gpus=(--nv); fi"
