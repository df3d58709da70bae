"""Selects the files of a snapshot: not ignored, no secrets, not too large. Pure."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable
from pathlib import Path, PurePath

from echelon.record import record
from echelon.submission.secret_names import is_secret

JUNK = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".tox",
        ".nox",
        ".ipynb_checkpoints",
    }
)


class Exclusion(str, enum.Enum):
    SECRET = "secret"  # noqa: S105  not a password
    LARGE = "large"


@record
class ProjectFile:
    """One file or link of the project."""

    path: PurePath
    """Relative to the project's root."""
    size: int = 0
    link: str | None = None
    """Target of the link; None for a file."""


@record
class Selection:
    taken: tuple[ProjectFile, ...]
    left: tuple[tuple[ProjectFile, Exclusion], ...]

    def left_for(self, why: Exclusion) -> list[ProjectFile]:
        return [entry for entry, reason in self.left if reason is why]

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.taken)


def select_files(entries: Iterable[ProjectFile], most_bytes: int) -> Selection:
    taken, left = [], []
    for entry in sorted(entries, key=lambda entry: entry.path):
        if is_junk(entry.path):
            continue
        why = exclusion_of(entry, most_bytes)
        if why is None:
            taken.append(entry)
        else:
            left.append((entry, why))
    return Selection(taken=tuple(taken), left=tuple(left))


def is_junk(path: PurePath) -> bool:
    return not JUNK.isdisjoint(path.parts)


def exclusion_of(entry: ProjectFile, most_bytes: int) -> Exclusion | None:
    if is_secret(entry.path):
        return Exclusion.SECRET
    return Exclusion.LARGE if entry.size > most_bytes else None


def copied_link_target(entry: ProjectFile, project: Path) -> tuple[str, bool]:
    """Target of the link's copy, and whether it is outside the project. A target outside becomes an absolute path. A
    target inside stays or becomes a relative path, so that the copy points to the copied file."""
    text = entry.link or ""
    here = project / entry.path.parent
    target = Path(os.path.normpath(here / text))
    if not target.is_relative_to(project):
        return str(target), True
    return (os.path.relpath(target, here) if Path(text).is_absolute() else text), False
