"""`--env apptainer`, or singularity by its older name: an image file, a folder, or an address that it understands."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.command import spread, variable, words
from echelon.environments.entry import Entry, refuse
from echelon.environments.images import is_address
from echelon.environments.mounts import mount_lines, mounts_of, source_lines
from echelon.job import Job

TOOL = variable("tool")


def entry(job: Job) -> Entry:
    enclosure = job.enclosure
    image = enclosure.image or ""
    options = (*("--writable-tmpfs",) * enclosure.writable, *("--fakeroot",) * enclosure.root)
    names = ("singularity", "apptainer") if job.environment == "singularity" else ("apptainer", "singularity")
    nothing = refuse(f"this node has neither {names[0]} nor {names[1]}", "--modules NAME that brings one along")
    lines = (
        *("", "# The container"),
        f"tool=$(type -P {names[0]} || type -P {names[1]}) || {nothing}",
        *source_lines(mounts_of(job), refuse(f"this node has no {variable('source')} to mount", "another --mount")),
        *(() if is_address(image, job.environment) else _image(image)),
        *mount_lines(job, "--bind", ":ro"),
        "unset PYTHONHOME # everything else that is exported comes along",
        "gpus=()",
        *(_gpus() if job.resources.gpus_per_node else ()),
    )
    where = ("--pwd", job.inner_cwd)
    wrapper = (TOOL, "exec", *options, spread("gpus"), spread("mounts"), *where, image)
    return Entry(place=f"the image {image}", lines=lines, wrapper=wrapper)


def _image(image: str) -> Iterator[str]:
    yield f"[ -r {words(image)} ] || {refuse(f'this node has no image {image}', 'another --image')}"


def _gpus() -> Iterator[str]:
    yield "if [ -e /dev/kfd ] && ! [ -e /dev/nvidiactl ]; then gpus=(--rocm); else gpus=(--nv); fi"
