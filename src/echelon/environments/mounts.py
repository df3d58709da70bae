"""What a container sees of its node, besides its image: the run's folder, the working directory, what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from echelon.command import variable, words
from echelon.job import Job


@dataclass(frozen=True, kw_only=True)
class Mount:
    source: str
    target: str
    read_only: bool = False

    def spelled(self, read_only: str = ":ro") -> str:
        """`read_only` is what stands behind a target that must stay as it is."""
        return f"{self.source}:{self.target}{read_only if self.read_only else ''}"


def parse_mount(text: str) -> Mount:
    """`SRC:DST`, `SRC:DST:ro`, or `DIR` for the same place in both; raises ValueError."""
    source, *rest = text.split(":")
    flags = rest[1:] if len(rest) > 1 else []
    if len(rest) > 2 or flags not in ([], ["ro"], ["rw"]):
        raise ValueError("it must be SRC:DST or SRC:DST:ro, without further colons")
    target = rest[0] if rest else source
    if not source or not target.startswith("/"):
        raise ValueError("SRC is a path here, and DST a path inside of the container, which begins with a slash")
    if any(letter.isspace() or letter == "," for letter in text):
        raise ValueError("container runtimes take no path with a space or a comma in it")
    return Mount(source=source, target=target, read_only=flags == ["ro"])


def mounts_of(job: Job) -> list[Mount]:
    return [parse_mount(text) for text in job.enclosure.mounts]


def mount_lines(job: Job, flag: str, read_only: str) -> Iterator[str]:
    """The array `mounts`, of one flag for each."""
    run, folder = variable("run"), variable("ECHELON_FOLDER")
    yield "run=${0%/*}"
    yield "mounts=()"
    yield f"[ ! -d {words(job.cwd)} ] || mounts+=({words(flag, f'{job.cwd}:{job.cwd}')})"
    yield f"mounts+=({words(flag, f'{run}:{run}')})"
    yield f'[ -z "${{ECHELON_FOLDER-}}" ] || mounts+=({words(flag, f"{folder}:{folder}")})'
    yield from (f"mounts+=({words(flag, mount.spelled(read_only))})" for mount in mounts_of(job))


def source_lines(mounts: Sequence[Mount], refuse_source: str) -> Iterator[str]:
    """`refuse_source` refuses `$source`."""
    for mount in mounts:
        yield f"source={words(mount.source)}"
        yield f'[ -e "$source" ] || {refuse_source}'
