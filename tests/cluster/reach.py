"""Mounts that give an ordinary user access to folders below unreadable ones, without changing permissions."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class Cover(NamedTuple):
    """An empty file system of the node, mounted over the machine's folder."""

    target: str
    mode: str


class Bind(NamedTuple):
    """A folder or file of the machine, from before the other mounts."""

    source: str
    target: str


class Overlay(NamedTuple):
    """A tree of the machine, laid over the folder that a node sees at the target; read-only."""

    source: str
    target: str


def python_folders() -> list[Path]:
    """Everything that this Python needs to start and to import what it can import here."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), *(Path(entry) for entry in sys.path if entry)}
    folders |= {link.parent for link in _links(Path(sys.executable))}
    return sorted({path for folder in folders if folder.is_dir() for path in (folder.absolute(), folder.resolve())})


def _links(path: Path) -> list[Path]:
    """The path, and each further one that a chain of symbolic links leads to."""
    hops = [path]
    while hops[-1].is_symlink():
        hops.append(hops[-1].parent / hops[-1].readlink())
    return hops


def reach(folders: Iterable[Path], covers: Mapping[Path, str]) -> list[Cover | Bind]:
    """The given covers, one over each folder closed to others, and the wanted folders again beneath them."""
    steps: list[Cover | Bind] = [Cover(str(target), mode) for target, mode in covers.items()]
    covered, bound = set(covers), set()
    for folder in sorted(set(folders) - set(covers), key=_depth):
        way = _way(folder, bound)
        closed = [step for step in way if _closed(step)]
        if closed and covered.isdisjoint(way):
            steps.append(Cover(str(closed[0]), "755"))
            covered.add(closed[0])
        if not covered.isdisjoint(way):
            steps += [Bind(str(path), str(path)) for path in _open_parts(folder)]
            bound.add(folder)
    return sorted(steps, key=lambda step: _depth(Path(step.target)))  # what lies above comes first


def _depth(path: Path) -> int:
    return len(path.parts)


def _way(folder: Path, bound: set[Path]) -> list[Path]:
    """The ancestors of the folder from the root, and the folder itself. Starts below the nearest bound folder."""
    way = [*reversed(folder.parents), folder]
    start = max((i + 1 for i, step in enumerate(way) if step in bound), default=0)
    return way[start:]


def _closed(folder: Path) -> bool:
    return not folder.stat().st_mode & stat.S_IXOTH


def _open_parts(folder: Path) -> list[Path]:
    """The folder, or its entries if the folder itself is unreadable."""
    return sorted(folder.iterdir()) if _closed(folder) else [folder]
