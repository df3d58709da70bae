"""Which files of a project are in its snapshot, and why the others are not. Pure."""

from __future__ import annotations

import enum
import fnmatch
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

JUNK = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".nox", ".ipynb_checkpoints"}
)
SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure"})
SECRETS = (
    *(".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pypirc", ".npmrc", ".pgpass"),
    *(".git-credentials", ".htpasswd", "credentials.json", "service-account*.json", "secrets.*", ".secrets*"),
    *("kaggle.json", "*.ovpn"),
)
NO_SECRETS = frozenset({".env.example", ".env.sample", ".env.template", "*.pub"})
UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Why(str, enum.Enum):
    SECRET = "secret"  # noqa: S105  a word for one
    LARGE = "large"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file or link of the project."""

    path: PurePath
    """From the project's root."""
    size: int = 0
    link: str | None = None
    """Where it points to, if it is a link."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    taken: tuple[Entry, ...]
    left: tuple[tuple[Entry, Why], ...]

    def left_for(self, why: Why) -> list[Entry]:
        return [entry for entry, reason in self.left if reason is why]

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.taken)


def choose(entries: Iterable[Entry], most_bytes: int) -> Chosen:
    taken, left = [], []
    for entry in sorted(entries, key=lambda entry: entry.path):
        if is_junk(entry.path):
            continue
        why = why_not(entry, most_bytes)
        if why is None:
            taken.append(entry)
        else:
            left.append((entry, why))
    return Chosen(taken=tuple(taken), left=tuple(left))


def is_junk(path: PurePath) -> bool:
    return not JUNK.isdisjoint(path.parts)


def why_not(entry: Entry, most_bytes: int) -> Why | None:
    if is_secret(entry.path):
        return Why.SECRET
    return Why.LARGE if entry.size > most_bytes else None


def is_secret(path: PurePath) -> bool:
    """By its name, whatever the case; what is inside is nobody's business."""
    name = path.name.lower()
    if _matches(name, NO_SECRETS):
        return False
    return _matches(name, SECRETS) or not SECRET_FOLDERS.isdisjoint(part.lower() for part in path.parts)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def in_bytes(text: str) -> int:
    """`50M`, or a number of megabytes, as everywhere."""
    unit = text[-1] if text[-1].isalpha() else ""
    return int(text.removesuffix(unit)) * UNITS[unit]


def link_text(entry: Entry, project: Path) -> tuple[str, bool]:
    """What the copy of a link says, and whether it leads out of the project: outside it leads where it led before,
    inside to the copy of what it led to, however it was spelled."""
    text = entry.link or ""
    here = project / entry.path.parent
    target = Path(os.path.normpath(here / text))
    if not target.is_relative_to(project):
        return str(target), True
    return (os.path.relpath(target, here) if Path(text).is_absolute() else text), False
