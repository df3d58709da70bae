"""Reads the cgroups of a process, version 1 and 2: limits, peaks and kills. Every value may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from echelon.record import record
from echelon.untrusted import read_regular

MOST_FILE_BYTES = 4 << 20
UNLIMITED = 1 << 60
"""Version 1 has a huge number instead of no limit."""


@record
class Cgroup:
    """The folders of a process in one hierarchy: its own first, then the ancestors that are visible."""

    version: int
    folders: tuple[Path, ...] = ()


NO_CGROUP = Cgroup(version=2)


@record
class _Mount:
    version: int
    root: str
    """The path inside the hierarchy that is mounted."""
    point: str
    controllers: tuple[str, ...]


def find_cgroup(pid: int, controller: str, root: Path = Path("/")) -> Cgroup:
    """The cgroup with this controller, such as memory or pids. Without folders if none is visible."""
    mounts = tuple(_parse_mounts(read_text(root / f"proc/{pid}/mountinfo")))
    for controllers, path in _parse_memberships(read_text(root / f"proc/{pid}/cgroup")):
        version = 1 if controllers else 2
        if controllers and controller not in controllers:
            continue
        for mount in mounts:
            if mount.version == version and (version == 2 or controller in mount.controllers):
                folders = _folders_up_to_mount(mount, path, root)
                if any(next(folder.glob(f"{controller}.*"), None) for folder in folders):
                    return Cgroup(version=version, folders=folders)
    return NO_CGROUP


def _parse_memberships(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Controllers and path of each line of /proc/PID/cgroup. Version 2 has no controllers, and comes last."""
    parts = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    for _, controllers, path in sorted(parts, key=lambda part: part[1] == ""):
        yield tuple(filter(None, controllers.split(","))), path


def _parse_mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kinds[0] == "cgroup2" else 1
        controllers = tuple(kinds[2].split(","))
        yield _Mount(
            version=version, root=_unescape_octal(fields[3]), point=_unescape_octal(fields[4]), controllers=controllers
        )


def _unescape_octal(word: str) -> str:
    """mountinfo writes spaces as octal numbers."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), word)


def _folders_up_to_mount(mount: _Mount, path: str, root: Path) -> tuple[Path, ...]:
    """The process's folder and its ancestors, up to the mount. Only the mount itself if the folder is not below it."""
    top = root / mount.point.lstrip("/")
    place = PurePosixPath(path)
    if place.is_relative_to(mount.root) and ".." not in place.parts:
        own = top / place.relative_to(mount.root)
        if own.is_dir():
            return (own, *(folder for folder in own.parents if folder == top or folder.is_relative_to(top)))
    return (top,) if top.is_dir() else ()


def read_text(path: Path) -> str:
    """Empty if the file cannot be read."""
    try:
        return read_regular(path, MOST_FILE_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def read_number(path: Path) -> int | None:
    """None for a file that is missing or has another content, such as "max"."""
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else None


def read_field(path: Path, name: str) -> int | None:
    """The number after a name, in a file with one name and number per line."""
    found = re.search(rf"^{re.escape(name)}:?\s+(\d+)", read_text(path), re.MULTILINE)
    return int(found[1]) if found else None


def smallest_limit(cgroup: Cgroup, name: str) -> tuple[int, Path] | None:
    """The smallest limit of the cgroup and its ancestors, and the nearest folder that has it."""
    found = [(limit, folder) for folder in cgroup.folders if (limit := read_number(folder / name)) is not None]
    limited = [(limit, folder) for limit, folder in found if limit < UNLIMITED]
    return min(limited, key=lambda pair: pair[0], default=None)
